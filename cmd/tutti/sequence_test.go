package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/tutti-server/tutti/proto/inference"
)

// sequenceModels writes a repository of models of the backend sequence.
func sequenceModels(t *testing.T) string {
	t.Helper()
	return unpack(t, "testdata/sequences.txtar",
		txtar.File{Name: "kept/initial_state/hundred", Data: []byte{100, 0, 0, 0}}, txtar.File{Name: "kept/initial_state/three", Data: []byte("abc")})
}

// unpack writes the files of an archive, and additional ones, to a new folder.
func unpack(t *testing.T, archive string, more ...txtar.File) string {
	t.Helper()
	a, err := txtar.ParseFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, f := range append(a.Files, more...) {
		path := filepath.Join(dir, f.Name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o750), os.WriteFile(path, f.Data, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// sequenceRequest is a request with one number, and the parameters of its sequence.
type sequenceRequest struct {
	model      string
	id         any // a number or a string
	start, end bool
	timeout    int64
	rows       int
	v          int32
}

func (a sequenceRequest) body() string {
	id, params := "", fmt.Sprintf(`"sequence_start":%t,"sequence_end":%t`, a.start, a.end)
	switch v := a.id.(type) {
	case int:
		id = fmt.Sprintf(`"sequence_id":%d,`, v)
	case string:
		id = fmt.Sprintf(`"sequence_id":%q,`, v)
	}
	if a.timeout > 0 {
		params += fmt.Sprintf(`,"timeout":%d`, a.timeout)
	}
	rows := max(a.rows, 1)
	data := strings.TrimSuffix(strings.Repeat(strconv.Itoa(int(a.v))+",", rows), ",")
	return fmt.Sprintf(`{"parameters":{%s%s},"inputs":[{"name":"INPUT","datatype":"INT32","shape":[%d,1],"data":[%s]}]}`, id, params, rows, data)
}

func (a sequenceRequest) message() *inference.ModelInferRequest {
	params := map[string]*inference.InferParameter{
		"sequence_start": {ParameterChoice: &inference.InferParameter_BoolParam{BoolParam: a.start}},
		"sequence_end":   {ParameterChoice: &inference.InferParameter_BoolParam{BoolParam: a.end}},
	}
	switch v := a.id.(type) {
	case int:
		params["sequence_id"] = &inference.InferParameter{ParameterChoice: &inference.InferParameter_Int64Param{Int64Param: int64(v)}}
	case string:
		params["sequence_id"] = &inference.InferParameter{ParameterChoice: &inference.InferParameter_StringParam{StringParam: v}}
	}
	if a.timeout > 0 {
		params["timeout"] = &inference.InferParameter{ParameterChoice: &inference.InferParameter_Int64Param{Int64Param: a.timeout}}
	}
	data := make([]int32, max(a.rows, 1))
	for i := range data {
		data[i] = a.v
	}
	return &inference.ModelInferRequest{
		ModelName: a.model, Parameters: params,
		Inputs: []*inference.ModelInferRequest_InferInputTensor{{
			Name: "INPUT", Datatype: "INT32", Shape: []int64{int64(len(data)), 1}, Contents: &inference.InferTensorContents{IntContents: data},
		}},
	}
}

// outcome returns a response's number, or an error's text.
func outcome(m *inference.ModelInferResponse, err error) string {
	if err != nil {
		return status.Convert(err).Message()
	}
	if len(m.GetRawOutputContents()) == 0 {
		return "nothing"
	}
	b := m.GetRawOutputContents()[0]
	return strconv.Itoa(int(int32(uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24)))
}

func dialStub(tb testing.TB, address string) inference.GRPCInferenceServiceClient {
	tb.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close() })
	return inference.NewGRPCInferenceServiceClient(conn)
}

// TestSequenceErrors checks the requests that the sequence scheduler refuses, and valid ones close to them, over
// HTTP and gRPC.
// shows: config.sequences
func TestSequenceErrors(t *testing.T) {
	t.Parallel()
	a := serve(t, "--model-repository="+sequenceModels(t))
	stub := dialStub(t, a.grpc)
	long := strings.Repeat("x", 129)
	for name, tc := range map[string]struct {
		asks []sequenceRequest
		want []string
	}{
		"no id": {[]sequenceRequest{{model: "sum", start: true, v: 1}}, []string{"inference request to model 'sum' must specify a non-zero or non-empty correlation ID"}},
		"rows": {[]sequenceRequest{{model: "sum", id: 1, start: true, rows: 2, v: 1}}, []string{
			"inference request to model 'sum' must specify batch-size 1 due to requirements of sequence batcher",
		}},
		"no start": {[]sequenceRequest{{model: "sum", id: 2, v: 1}}, []string{
			"inference request for sequence 2 to model 'sum' must specify the START flag on the first request of the sequence",
		}},
		"end alone": {[]sequenceRequest{{model: "sum", id: "end", end: true, v: 1}}, []string{
			"inference request for sequence end to model 'sum' must specify the START flag on the first request of the sequence",
		}},
		"after the end": {[]sequenceRequest{{model: "sum", id: 3, start: true, end: true, v: 1}, {model: "sum", id: 3, v: 1}}, []string{
			"1", "inference request for sequence 3 to model 'sum' must specify the START flag on the first request of the sequence",
		}},
		"start again":  {[]sequenceRequest{{model: "sum", id: 4, start: true, v: 1}, {model: "sum", id: 4, v: 2}, {model: "sum", id: 4, start: true, v: 5}, {model: "sum", id: 4, end: true, v: 1}}, []string{"1", "3", "5", "6"}},
		"long id":      {[]sequenceRequest{{model: "sum", id: long, start: true, v: 1}}, []string{"inference request to model 'sum' has a correlation ID of 129 bytes, expected at most 128"}},
		"longest id":   {[]sequenceRequest{{model: "sum", id: long[1:], start: true, end: true, v: 1}}, []string{"1"}},
		"wrong type":   {[]sequenceRequest{{model: "numbered", id: "x", start: true, v: 1}}, []string{"inference request to model 'numbered' has correlation ID 'x', expected a number up to 2147483647: control CONTROL_SEQUENCE_CORRID is TYPE_INT32"}},
		"wrong number": {[]sequenceRequest{{model: "numbered", id: 1 << 31, start: true, v: 1}}, []string{"inference request to model 'numbered' has correlation ID '2147483648', expected a number up to 2147483647: control CONTROL_SEQUENCE_CORRID is TYPE_INT32"}},
		"other model":  {[]sequenceRequest{{model: "sum", id: 5, start: true, v: 1}, {model: "numbered", id: 5, v: 1}}, []string{"1", "inference request for sequence 5 to model 'numbered' must specify the START flag on the first request of the sequence"}},
		"countdown":    {[]sequenceRequest{{model: "once", v: 3}, {model: "once", v: 0}}, []string{"0", "input 'INPUT' of model 'once' is 0, expected how often to execute the request, at least 1"}},
		"in place":     {[]sequenceRequest{{model: "kept", id: 6, start: true, v: 1}, {model: "kept", id: 6, v: 2}, {model: "kept", id: 6, start: true, v: 3}, {model: "kept", id: 6, end: true, v: 4}}, []string{"101", "103", "103", "107"}},
		"through two":  {[]sequenceRequest{{model: "both", id: 7, start: true, v: 1}, {model: "both", id: 7, v: 2}, {model: "both", id: 7, end: true, v: 3}}, []string{"1", "4", "10"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, over := range []string{"HTTP", "gRPC"} {
				var got []string
				for _, one := range tc.asks {
					if over == "gRPC" {
						got = append(got, outcome(stub.ModelInfer(t.Context(), one.message())))
						continue
					}
					_, text := post(t, "http://"+a.http+"/v2/models/"+one.model+"/infer", one.body())
					got = append(got, short(text))
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("over %s (-want +got):\n%s", over, diff)
				}
			}
		})
	}
}

// short returns the number in a response, or the error's text.
func short(text string) string {
	if _, after, ok := strings.Cut(text, `"error":"`); ok {
		after, _, _ = strings.Cut(after, `","reason":"`)
		return strings.TrimSuffix(after, `"}`)
	}
	_, after, _ := strings.Cut(text, `"data":[`)
	before, _, _ := strings.Cut(after, "]")
	return before
}

// TestSequenceStream checks interleaved sequences of several models on one stream, and one sequence without a
// start.
func TestSequenceStream(t *testing.T) {
	t.Parallel()
	a := serve(t, "--model-repository="+sequenceModels(t))
	stream, err := dialStub(t, a.grpc).ModelStreamInfer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const sequences, length = 20, 5
	var want, got []string
	for k := range length {
		for i := range sequences {
			for _, model := range []string{"sum", "numbered", "kept"} {
				one := sequenceRequest{model: model, id: i + 1, start: k == 0, end: k == length-1, v: int32(k + 1)}
				sum := (k + 1) * (k + 2) / 2
				if model == "kept" {
					sum += 100
				}
				want = append(want, strconv.Itoa(sum))
				if i == 7 && model == "sum" {
					one.start = false
					want[len(want)-1] = "inference request for sequence 8 to model 'sum' must specify the START flag on the first request of the sequence"
				}
				if err := stream.Send(one.message()); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if m.GetErrorMessage() != "" {
			got = append(got, m.GetErrorMessage())
		} else {
			got = append(got, outcome(m.GetInferResponse(), nil))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

var generated = regexp.MustCompile(`(?m)^data: .*"OUTPUT":(-?\d+)`)

// TestIterative checks models that execute a request several times, alone and in an ensemble, through generate,
// generate_stream and a gRPC stream.
// shows: config.sequences generate_stream
func TestIterative(t *testing.T) {
	t.Parallel()
	a := serve(t, "--model-repository="+sequenceModels(t))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for _, model := range []string{"count", "counts"} {
				var want, values []string
				for left := range i + 1 {
					want = append(want, strconv.Itoa(i-left))
				}
				code, got := post(t, "http://"+a.http+"/v2/models/"+model+"/generate_stream", fmt.Sprintf(`{"INPUT":%d}`, i+1))
				for _, m := range generated.FindAllStringSubmatch(got, -1) {
					values = append(values, m[1])
				}
				if diff := cmp.Diff(want, values); code != http.StatusOK || diff != "" {
					t.Errorf("%s: %d (-want +got):\n%s\n%s", model, code, diff, got)
				}
			}
			for _, model := range []string{"once", "onces"} {
				code, got := post(t, "http://"+a.http+"/v2/models/"+model+"/generate", fmt.Sprintf(`{"INPUT":%d}`, i+1))
				if code != http.StatusOK || !strings.Contains(got, `"OUTPUT":0`) {
					t.Errorf("%s: %d %s", model, code, got)
				}
			}
		})
	}
	wg.Wait()
	if code, got := post(t, "http://"+a.http+"/v2/models/sum/generate", `{"INPUT":4,"parameters":{"sequence_id":7,"sequence_start":true,"sequence_end":true}}`); code != http.StatusOK || !strings.Contains(got, `"OUTPUT":4`) {
		t.Errorf("a sequence by generate: %d %s", code, got)
	}
	for _, model := range []string{"count", "counts"} {
		if diff := cmp.Diff([]string{"2", "1", "0"}, streamed(t, a.grpc, sequenceRequest{model: model, v: 3})); diff != "" {
			t.Errorf("%s over gRPC (-want +got):\n%s", model, diff)
		}
	}
}

// streamed returns the responses to one request.
func streamed(t *testing.T, address string, one sequenceRequest) (got []string) {
	t.Helper()
	stream, err := dialStub(t, address).ModelStreamInfer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(stream.Send(one.message()), stream.CloseSend()); err != nil {
		t.Fatal(err)
	}
	for m, err := stream.Recv(); !errors.Is(err, io.EOF); m, err = stream.Recv() {
		if err != nil || m.GetErrorMessage() != "" {
			t.Fatal(err, m.GetErrorMessage())
		}
		got = append(got, outcome(m.GetInferResponse(), nil))
	}
	return got
}

// TestSequenceReload checks that replacing or unloading a model ends its sequences, and that later requests get an
// error that says so.
func TestSequenceReload(t *testing.T) {
	t.Parallel()
	a := serve(t, "--model-repository="+sequenceModels(t), "--model-control-mode=explicit", "--load-model=sum")
	stub := dialStub(t, a.grpc)
	try := func(one sequenceRequest) string { return outcome(stub.ModelInfer(t.Context(), one.message())) }
	if got := try(sequenceRequest{model: "sum", id: 1, start: true, v: 5}); got != "5" {
		t.Fatal(got)
	}
	config := `{"parameters":{"config":"{\"backend\":\"sequence\",\"max_batch_size\":2,\"sequence_batching\":{\"direct\":{},\"control_input\":[` +
		`{\"name\":\"START\",\"control\":[{\"kind\":\"CONTROL_SEQUENCE_START\",\"int32_false_true\":[0,1]}]},` +
		`{\"name\":\"READY\",\"control\":[{\"kind\":\"CONTROL_SEQUENCE_READY\",\"int32_false_true\":[0,1]}]}]}}"}}`
	if code, text := post(t, "http://"+a.http+"/v2/repository/models/sum/load", config); code != http.StatusOK {
		t.Fatal(code, text)
	}
	const ended = "inference request for sequence 1 to model 'sum' must specify the START flag on the first request of the sequence"
	if got := try(sequenceRequest{model: "sum", id: 1, v: 5}); got != ended {
		t.Errorf("after the reload: %s", got)
	}
	if got := try(sequenceRequest{model: "sum", id: 1, start: true, v: 5}); got != "5" {
		t.Errorf("a new sequence after the reload: %s", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	begun := make(chan struct{}, 16)
	for c := range 16 {
		wg.Go(func() { sendUntilUnloaded(ctx, t, stub, c, begun) })
	}
	for range 16 {
		<-begun
	}
	if code, text := post(t, "http://"+a.http+"/v2/repository/models/sum/unload", "{}"); code != http.StatusOK {
		t.Error(code, text)
	}
	wg.Wait()
	if got := try(sequenceRequest{model: "sum", id: 1, v: 5}); !gone(got) {
		t.Errorf("after the unload: %s", got)
	}
}

// gone reports whether an error says that the model is unloaded.
func gone(text string) bool {
	return strings.HasPrefix(text, "Request for unknown model: 'sum'")
}

// sendUntilUnloaded sends sequences until the model is unloaded. It signals begun after the first one.
func sendUntilUnloaded(ctx context.Context, t *testing.T, stub inference.GRPCInferenceServiceClient, client int, begun chan<- struct{}) {
	t.Helper()
	for n := range 100000 {
		for k := range 3 {
			got := outcome(stub.ModelInfer(ctx, sequenceRequest{model: "sum", id: 100 + client*100000 + n, start: k == 0, end: k == 2, v: 1}.message()))
			if gone(got) {
				return
			}
			if got != strconv.Itoa(k+1) {
				t.Errorf("request %d of sequence %d of client %d: %s", k, n, client, got)
				return
			}
		}
		if n == 0 {
			begun <- struct{}{}
		}
	}
}

package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/inference"
	"github.com/tutti-server/tutti/steps"
)

// held is a backend of identity models whose executions wait until the test releases them.
type held struct {
	begun, let chan struct{}
	sig        *config.Signature
}

func (h *held) factory() backends.Factory {
	return backends.Factory{Name: "held", New: func(backends.Options) (backends.Backend, error) { return h, nil }}
}

func (h *held) Load(_ context.Context, s backends.Settings) (backends.Model, error) {
	port := func(name string) []config.Port {
		return []config.Port{{Name: name, DType: tensor.Int32, Dims: tensor.Of(1)}}
	}
	return &held{h.begun, h.let, &config.Signature{Model: s.Model, Version: s.Version, MaxBatch: int(s.Config.GetMaxBatchSize()), Inputs: port("INPUT0"), Outputs: port("OUTPUT0")}}, nil
}

func (h *held) Signature() *config.Signature { return h.sig }
func (*held) Close() error                   { return nil }

func (h *held) NewInstance(context.Context, tensor.Place) (backends.Instance, error) { return h, nil }

func (h *held) Execute(_ context.Context, b *backends.Batch) error {
	h.begun <- struct{}{}
	<-h.let
	b.SetOutput(0, b.In[0].Retain())
	return nil
}

// drainRepo writes the models of TestDrain.
func drainRepo(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	const ports = `input [{ name: "INPUT0" data_type: TYPE_INT32 dims: [1] }] output [{ name: "OUTPUT0" data_type: TYPE_INT32 dims: [1] }]`
	for name, text := range map[string]string{
		"held": `backend: "held" ` + ports, "copy": `backend: "identity" ` + ports,
		"ens": `platform: "ensemble" ` + ports + ` ensemble_scheduling { step { model_name: "copy" model_version: -1
			input_map { key: "INPUT0" value: "INPUT0" } output_map { key: "OUTPUT0" value: "OUTPUT0" } } }`,
	} {
		if err := os.MkdirAll(filepath.Join(root, name, "1"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name, "config.pbtxt"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// TestDrain checks the shutdown of a server with an open connection and a request in flight: the connection stays
// usable until its client disconnects. Then new requests are refused with Triton's error while the services stay
// up, and the request in flight gets its response.
func TestDrain(t *testing.T) {
	t.Parallel()
	h := &held{begun: make(chan struct{}), let: make(chan struct{})}
	c := components()
	plain := c.Backends
	c.Backends = func(known *steps.Registry) []backends.Factory { return append(slices.Clone(plain(known)), h.factory()) }
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	a, log := serveUntil(ctx, t, c, "--model-repository="+drainRepo(t), "--exit-timeout-secs=600", "--exit-connection-secs=300")

	conn, err := net.Dial("tcp", a.http) //nolint:noctx // loopback
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	responses := bufio.NewReader(conn)
	kept := func(wantClose bool) {
		t.Helper()
		code, text, closing := exchange(t, conn, responses, "/v2/models/copy/infer", drainInput)
		if code != http.StatusOK || closing != wantClose {
			t.Errorf("over the open connection: got status %d, %s, closing %v", code, text, closing)
		}
	}
	kept(false)

	stub, underWay := dialStub(t, a.grpc), make(chan string, 1)
	go func() { underWay <- outcome(stub.ModelInfer(context.Background(), drainRequest("held"))) }()
	<-h.begun
	stop()
	if !log.await(func(text string) bool { return strings.Contains(text, "Timeout 600: Found 1 HTTP service connections") }) {
		t.Fatalf("the server did not wait for the connection:\n%s", log)
	}
	if got := outcome(stub.ModelInfer(t.Context(), drainRequest("copy"))); got != "7" {
		t.Errorf("over gRPC while the connection is open: got %s, want 7", got)
	}
	kept(true)
	if !log.await(func(text string) bool { return strings.Contains(text, "Waiting for in-flight requests to complete.") }) {
		t.Fatalf("the server did not go on:\n%s", log)
	}

	const refused = "[request id: <id_unknown>] Server is stopping, scheduler for model has stopped accepting new inference requests"
	const draining = `,"reason":"SERVER_DRAINING","retryable":true,"retry_after_ms":1000}`
	for _, tt := range []struct {
		path, body string
		code       int
		after      string
		want       string
	}{
		{"/v2/models/copy/infer", drainInput, 503, "1", `{"error":"` + refused + `"` + draining},
		{"/v2/models/ens/infer", drainInput, 503, "1", `{"error":"in ensemble 'ens', ` + refused + `"` + draining},
		{"/v2/models/copy/generate", `{"INPUT0":7}`, 503, "1", `{"error":"` + refused + `"` + draining},
		{"/v2/health/live", "", 503, "1", `{"error":"Server exiting"` + draining},
		{"/v2/health/ready", "", 503, "1", `{"error":"Server exiting"` + draining},
	} {
		if code, after, got := fetchWhen(t, "http://"+a.http+tt.path, tt.body); code != tt.code || got != tt.want || after != tt.after {
			t.Errorf("%s: got status %d, %s, Retry-After %q, want %d, %s, %q", tt.path, code, got, after, tt.code, tt.want, tt.after)
		}
	}
	if code, _ := fetch(t, "http://"+a.http+"/v2/models/copy", ""); code != http.StatusOK {
		t.Errorf("metadata: status %d", code)
	}
	var trailer metadata.MD
	_, err = stub.ModelInfer(t.Context(), drainRequest("copy"), grpc.Trailer(&trailer))
	if s := status.Convert(err); s.Code() != codes.Unavailable || s.Message() != refused || !slices.Equal(trailer.Get("retry-after"), []string{"1"}) {
		t.Errorf("over gRPC: got %v, %v", err, trailer)
	}
	if got, after := detailsOf(t, err); got != (said{"Unavailable", "SERVER_DRAINING", true, ""}) || after != time.Second {
		t.Errorf("over gRPC: the details are %+v after %v", got, after)
	}
	if live, err := stub.ServerLive(t.Context(), &inference.ServerLiveRequest{}); err != nil || live.GetLive() {
		t.Errorf("live over gRPC: %v, %v", live, err)
	}
	close(h.let)
	if got := <-underWay; got != "7" {
		t.Errorf("the request under way: got %s, want 7", got)
	}
	if n := strings.Count(log.String(), "Timeout 600: "); n != 1 {
		t.Errorf("the count of seconds began %d times", n)
	}
}

const drainInput = `{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[1],"data":[7]}]}`

func drainRequest(model string) *inference.ModelInferRequest {
	return &inference.ModelInferRequest{ModelName: model, Inputs: []*inference.ModelInferRequest_InferInputTensor{{
		Name: "INPUT0", Datatype: "INT32", Shape: []int64{1}, Contents: &inference.InferTensorContents{IntContents: []int32{7}},
	}}}
}

// exchange sends a POST request over a connection and reads the response.
func exchange(t *testing.T, conn net.Conn, responses *bufio.Reader, path, body string) (code int, text string, closing bool) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if err := req.Write(conn); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(responses, req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b), resp.Close
}

// fetch sends a request on a new connection: a POST request, or a GET request if body is empty.
func fetch(t *testing.T, url, body string) (code int, text string) {
	t.Helper()
	code, _, text = fetchWhen(t, url, body)
	return code, text
}

// fetchWhen is fetch, and returns the header Retry-After as well.
func fetchWhen(t *testing.T, url, body string) (code int, after, text string) {
	t.Helper()
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get("Retry-After"), string(b)
}

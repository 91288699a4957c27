package remote_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/internal/addresstest"
	"github.com/tutti-server/tutti/proto/inference"
)

// scripted is a server of one model m with INPUT and OUTPUT, whose inferences a test answers.
type scripted struct {
	inference.UnimplementedGRPCInferenceServiceServer
	infer  func(ctx context.Context) (*inference.ModelInferResponse, error)
	stream func(s grpc.BidiStreamingServer[inference.ModelInferRequest, inference.ModelStreamInferResponse]) error
}

func (*scripted) ModelMetadata(context.Context, *inference.ModelMetadataRequest) (*inference.ModelMetadataResponse, error) {
	return &inference.ModelMetadataResponse{Inputs: ports("INPUT", "INT32", -1, 1), Outputs: ports("OUTPUT", "INT32", -1, 1)}, nil
}

func (f *scripted) ModelInfer(ctx context.Context, _ *inference.ModelInferRequest) (*inference.ModelInferResponse, error) {
	return f.infer(ctx)
}

func (f *scripted) ModelStreamInfer(s grpc.BidiStreamingServer[inference.ModelInferRequest, inference.ModelStreamInferResponse]) error {
	return f.stream(s)
}

// serveGRPC serves until the test ends.
func serveGRPC(t *testing.T, h inference.GRPCInferenceServiceServer, options ...grpc.ServerOption) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(options...)
	inference.RegisterGRPCInferenceServiceServer(s, h)
	done := make(chan struct{})
	go func() {
		_ = s.Serve(l)
		close(done)
	}()
	t.Cleanup(func() {
		s.Stop()
		<-done
	})
	return l.Addr().String()
}

// TestWrongResponses sends responses that do not fit the model, through both protocols: each error names the endpoint, what was expected and what
// was found, and the next response is served.
func TestWrongResponses(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var resp *inference.ModelInferResponse
	var failure error
	set := func(r *inference.ModelInferResponse, err error) {
		mu.Lock()
		defer mu.Unlock()
		resp, failure = r, err
	}
	f := &scripted{infer: func(context.Context) (*inference.ModelInferResponse, error) {
		mu.Lock()
		defer mu.Unlock()
		return resp, failure
	}}
	address := serveGRPC(t, f)
	near := start(t, nil, map[string]string{"here": probeConfig, "m": to(address, probeShape, "max_message_bytes=50000")})
	four := []byte{7, 0, 0, 0}
	detailed, err := grpcstatus.New(codes.FailedPrecondition, "the far reason").WithDetails(protoadapt.MessageV1Of(&inference.ModelReadyRequest{Name: "a detail"}))
	if err != nil {
		t.Fatal(err)
	}
	where := "model 'm' at '" + address + "'"
	for name, one := range map[string]struct {
		resp  *inference.ModelInferResponse
		err   error
		texts []string
	}{
		"trailing bytes":  {output("OUTPUT", "INT32", append(four, 1, 2, 3), 1, 1), nil, []string{"has 7 bytes for output 'OUTPUT'", "expected", "INT32 [1,1]"}},
		"trailing raw":    {&inference.ModelInferResponse{Outputs: output("OUTPUT", "INT32", four, 1, 1).GetOutputs(), RawOutputContents: [][]byte{four, four}}, nil, []string{"has 1 outputs and 2 raw contents", "expected"}},
		"no bytes":        {output("OUTPUT", "INT32", nil, 1, 1), nil, []string{"has 0 bytes for output 'OUTPUT'", "expected"}},
		"other shape":     {output("OUTPUT", "INT32", append(four, four...), 1, 2), nil, []string{"of shape [1,2]", "expected [-1,1]"}},
		"other rows":      {output("OUTPUT", "INT32", append(four, four...), 2, 1), nil, []string{"of shape [2,1] for 1 rows", "expected"}},
		"other type":      {output("OUTPUT", "FP32", four, 1, 1), nil, []string{"of data type 'FP32'", "expected 'INT32'"}},
		"other output":    {output("OTHER", "INT32", four, 1, 1), nil, []string{"OUTPUT"}},
		"too large":       {output("OUTPUT", "INT32", make([]byte, 100_000), 1, 25_000), nil, []string{"expected at most 50000 bytes", "max_message_bytes"}},
		"details":         {nil, detailed.Err(), []string{"the far reason"}},
		"a long text":     {nil, grpcstatus.Error(codes.Internal, strings.Repeat("x", 10_000)), []string{"xxx"}},
		"a code of none":  {nil, grpcstatus.Error(codes.Code(99), "odd"), []string{"odd"}},
		"a huge text":     {nil, grpcstatus.Error(codes.Internal, strings.Repeat("x", 20<<20)), nil},
		"a text not UTF8": {nil, grpcstatus.Error(codes.Internal, "a\xffb"), nil},
	} {
		for door, c := range dial(t, near) {
			set(one.resp, one.err)
			_, err := c.Infer(t.Context(), number("m", 1))
			expectError(t, name+" over "+door, err, append(one.texts, where)...)
			set(output("OUTPUT", "INT32", four, 1, 1), nil)
			got, err := c.Infer(t.Context(), number("m", 1))
			if err != nil {
				t.Fatalf("%s: after '%s': %v", door, name, err)
			}
			if list, err := client.Values[int32](got.Output("OUTPUT")); err != nil || len(list) != 1 || list[0] != 7 {
				t.Errorf("%s: got %v (%v)", door, list, err)
			}
			serves(t, door, c)
		}
	}
}

// TestTooLarge checks requests that are larger than this server sends, and than the far server takes: the error says whose limit it is.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	echo := &hostile{metadata: &inference.ModelMetadataResponse{Inputs: ports("INPUT", "INT32", -1, -1), Outputs: ports("OUTPUT", "INT32", -1, -1)}}
	address := serveGRPC(t, echo, grpc.MaxRecvMsgSize(3000))
	near := start(t, nil, map[string]string{"m": to(address, ""), "limited": to(address, "", "remote_model=m", "max_message_bytes=2000")})
	for door, c := range dial(t, near) {
		for model, text := range map[string]string{"m": "refuses a message", "limited": "expected at most 2000 bytes (parameter 'max_message_bytes')"} {
			_, err := c.Infer(t.Context(), &client.Request{Model: model, Inputs: []client.Tensor{client.Of("INPUT", []int64{1, 1000}, make([]int32, 1000)...)}})
			expectError(t, model+" over "+door, err, text, "too large", "model 'm' at '"+address+"'")
		}
	}
}

// TestSlow checks endpoints that never respond, and one that is silent after a request was served: requests fail after the parameter timeout with
// the endpoint's name, and the server serves its own model meanwhile.
func TestSlow(t *testing.T) {
	t.Parallel()
	f := &scripted{infer: func(ctx context.Context) (*inference.ModelInferResponse, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	slow := serveGRPC(t, f)
	behind := start(t, nil, map[string]string{"m": probeConfig})
	half := newProxy(t, behind.GRPCAddress())
	near := start(t, nil, map[string]string{
		"here": probeConfig, "slow": to(slow, "", "remote_model=m", "timeout=200ms"),
		"half": to(half.Addr().String(), "", "remote_model=m", "timeout=5s"),
	})
	for door, c := range dial(t, near) {
		if _, err := c.Infer(t.Context(), number("half", 1)); err != nil {
			t.Errorf("%s: %v", door, err)
		}
	}
	close(half.frozen)
	for door, c := range dial(t, near) {
		var all sync.WaitGroup
		for model, texts := range map[string][]string{"slow": {slow, "within 200ms"}, "half": {half.Addr().String(), "within 5s"}} {
			all.Go(func() {
				_, err := c.Infer(t.Context(), number(model, 1))
				expectError(t, model+" over "+door, err, append(texts, "did not respond", "timeout")...)
			})
		}
		serves(t, door, c)
		all.Wait()
	}
}

// TestEndlessStream checks decoupled models whose stream never ends: with responses, where the client leaves, and without, where the
// parameter timeout ends it; and one that responds wrongly after a right response. Through HTTP, the responses are events.
func TestEndlessStream(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{}, 16)
	f := &scripted{stream: func(s grpc.BidiStreamingServer[inference.ModelInferRequest, inference.ModelStreamInferResponse]) error {
		defer func() { ended <- struct{}{} }()
		req, err := s.Recv()
		if err != nil {
			return err
		}
		right := &inference.ModelStreamInferResponse{InferResponse: output("OUTPUT", "INT32", []byte{7, 0, 0, 0}, 1, 1)}
		switch req.GetRawInputContents()[0][0] {
		case 1: // for ever
			for s.Send(right) == nil {
			}
			return s.Context().Err()
		case 2: // nothing
			<-s.Context().Done()
			return s.Context().Err()
		}
		return errors.Join(s.Send(right), s.Send(&inference.ModelStreamInferResponse{InferResponse: output("OUTPUT", "INT32", []byte{7, 0, 0, 0, 9}, 1, 1)}))
	}}
	address := serveGRPC(t, f)
	near := start(t, nil, map[string]string{"here": probeConfig, "m": to(address, probeShape+`model_transaction_policy { decoupled: true }`, "timeout=2s")})
	c := dial(t, near)["grpc"].(client.Streamer) //nolint:forcetypeassert // gRPC streams
	enough := errors.New("enough")
	got := 0
	err := c.Stream(t.Context(), number("m", 1), func(*client.Response) error {
		if got++; got == 100 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) {
		t.Errorf("a stream without an end: %v after %d responses", err, got)
	}
	<-ended
	err = c.Stream(t.Context(), number("m", 2), func(*client.Response) error { return nil })
	expectError(t, "a stream without a response", err, address, "within 2s")
	<-ended
	got = 0
	err = c.Stream(t.Context(), number("m", 3), func(*client.Response) error {
		got++
		return nil
	})
	expectError(t, "a wrong response", err, address, "has 5 bytes for output 'OUTPUT'", "expected")
	if got != 1 {
		t.Errorf("%d responses before the wrong one, want 1", got)
	}
	<-ended
	for _, v := range []int{2, 3} {
		expectEvents(t, near, v, address)
		<-ended
	}
	serves(t, "after streams", dial(t, near)["http"])
}

// expectEvents sends a request over HTTP, whose events end with an error that names the endpoint.
func expectEvents(t *testing.T, near *server, v int, address string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+near.HTTPAddress()+"/v2/models/m/generate_stream", strings.NewReader(fmt.Sprintf(`{"INPUT": [%d]}`, v)))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(text), "error") || !strings.Contains(string(text), address) {
		t.Errorf("events of %d: %s (%v), want an error that names %s", v, text, err, address)
	}
}

// TestRedeployRequests checks, over HTTP, what clients see of an endpoint that comes back with another model: the model is not ready with both
// sides named, requests fail with the endpoint's name, and both end by themselves when the first model is back.
func TestRedeployRequests(t *testing.T) {
	t.Parallel()
	address := addresstest.Unused(t)
	first := startAt(t, nil, address, map[string]string{"m": probeConfig})
	near := start(t, nil, map[string]string{"here": probeConfig, "m": to(address, "")})
	c := dial(t, near)["http"]
	eventually(t, func() error {
		_, err := c.Infer(t.Context(), number("m", 1))
		return err
	})
	first.stop()
	other := startAt(t, nil, address, map[string]string{"m": strings.ReplaceAll(probeConfig, "TYPE_INT32", "TYPE_FP32")})
	eventually(t, func() error {
		if text := readiness(t, near); !strings.Contains(text, "was INT32 [1] and is FP32 [1]") || !strings.Contains(text, address) {
			return fmt.Errorf("with another model: %q", text)
		}
		return nil
	})
	_, err := c.Infer(t.Context(), number("m", 1))
	expectError(t, "another model", err, address, "FP32", "INT32")
	serves(t, "another model", c)
	other.stop()
	startAt(t, nil, address, map[string]string{"m": probeConfig})
	eventually(t, func() error {
		_, err := c.Infer(t.Context(), number("m", 1))
		if text := readiness(t, near); err == nil && text != "" {
			err = errors.New(text)
		}
		return err
	})
}

// readiness returns the body of the model's readiness endpoint, "" for ready.
func readiness(t *testing.T, s *server) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.HTTPAddress()+"/v2/models/m/ready", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode == http.StatusOK {
		return ""
	}
	return string(text)
}

// wide is a server of a model whose output has 20,000 bytes a row. most is the largest number of rows of a request.
type wide struct {
	scripted
	most atomic.Int64
}

func (*wide) ModelMetadata(context.Context, *inference.ModelMetadataRequest) (*inference.ModelMetadataResponse, error) {
	return &inference.ModelMetadataResponse{Inputs: ports("INPUT", "INT32", -1, 1), Outputs: ports("OUTPUT", "INT32", -1, 5000)}, nil
}

func (w *wide) ModelInfer(_ context.Context, r *inference.ModelInferRequest) (*inference.ModelInferResponse, error) {
	rows := r.GetInputs()[0].GetShape()[0]
	w.most.Store(max(w.most.Load(), rows))
	return output("OUTPUT", "INT32", make([]byte, 20_000*rows), rows, 5000), nil
}

// TestTooLargeTogether checks requests whose response is too large as a batch and not alone: each is sent again alone, and none fails.
func TestTooLargeTogether(t *testing.T) {
	t.Parallel()
	w := &wide{}
	rest := "max_batch_size: 4\ndynamic_batching { preferred_batch_size: 4 max_queue_delay_microseconds: 200000 }\ninstance_group { count: 1 }"
	near := start(t, nil, map[string]string{"m": to(serveGRPC(t, w), rest, "max_message_bytes=30000")})
	c := dial(t, near)["http"]
	eventually(t, func() error {
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if _, err := c.Infer(t.Context(), number("m", 1)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if w.most.Load() < 2 && !t.Failed() {
			return errors.New("no two requests were sent together")
		}
		return nil
	})
}

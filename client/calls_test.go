package client_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/server/grpcapi"
	"github.com/tutti-server/tutti/internal/server/httpapi"
	"github.com/tutti-server/tutti/internal/server/servertest"
	"github.com/tutti-server/tutti/proto/inference"
)

// echoServer starts a server of models that return their inputs, and returns a client for each way of sending.
func echoServer(t *testing.T) (*servertest.Echo, map[string]client.Conn) {
	t.Helper()
	echo, alloc := servertest.NewEcho(), tensor.NewPool()
	url := "http://" + serve(t, httpapi.New(httpapi.Settings{Infer: echo, Catalog: echo, Alloc: alloc, Name: "echo"}))
	byGRPC, err := client.NewGRPC(serve(t, grpcapi.New(grpcapi.Settings{Infer: echo, Catalog: echo, Alloc: alloc, Name: "echo"})), nil)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]client.Conn{"binary": client.NewHTTP(url, nil), "json": client.NewHTTP(url, &client.HTTPOptions{JSON: true}), "grpc": byGRPC}
	t.Cleanup(func() {
		for _, c := range all {
			_ = c.Close()
		}
	})
	return echo, all
}

// TestParameters checks that the server gets the parameters and the sequence of a request, and the client those of a response.
func TestParameters(t *testing.T) {
	t.Parallel()
	echo, all := echoServer(t)
	for way, c := range all {
		for _, s := range []*client.Sequence{{ID: 1<<63 - 1, Start: true}, {Name: "s", End: true}} {
			resp, err := c.Infer(t.Context(), &client.Request{
				Model: "params", Inputs: []client.Tensor{client.Of("X", []int64{1}, float32(1))}, Sequence: s,
				Parameters: map[string]any{"b": true, "i": 7, "n": int64(-8), "t": "text", "f": 0.5, "priority": uint64(2), "timeout": 1000},
			})
			if err != nil {
				t.Fatalf("%s: %v", way, err)
			}
			want := map[string]any{"b": true, "i": 7.0, "n": -8.0, "t": "text", "f": 0.5}
			got := maps.Clone(resp.Parameters)
			for key, v := range got { // JSON has one type of numbers
				switch v := v.(type) {
				case int64:
					got[key] = float64(v)
				case uint64:
					got[key] = float64(v)
				}
			}
			for key := range got {
				if strings.HasPrefix(key, "sequence_") {
					delete(got, key)
				}
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s: parameters (-want +got): %s", way, d)
			}
			m := echo.Last.Load()
			if m.Priority != 2 || m.Timeout != 1000 || m.Sequence != (infer.Sequence{ID: s.ID, Name: s.Name, Start: s.Start, End: s.End}) {
				t.Errorf("%s: the server has priority %d, timeout %d, sequence %+v", way, m.Priority, m.Timeout, m.Sequence)
			}
		}
		_, err := c.Infer(t.Context(), &client.Request{Model: "params", Parameters: map[string]any{"x": []int{1}}})
		if err == nil || !strings.Contains(err.Error(), "parameter 'x' is a []int, expected bool") {
			t.Errorf("%s: %v", way, err)
		}
	}
}

// TestCancel checks that the end of a context ends the request at the server, too.
func TestCancel(t *testing.T) {
	t.Parallel()
	echo, all := echoServer(t)
	ways := map[string]func(ctx context.Context) error{}
	in := []client.Tensor{client.Of("X", []int64{1}, float32(1))}
	for way, c := range all {
		ways[way] = func(ctx context.Context) error {
			_, err := c.Infer(ctx, &client.Request{Model: "wait", Inputs: in})
			return err
		}
	}
	ways["stream"] = func(ctx context.Context) error {
		return all["grpc"].(client.Streamer).Stream(ctx, &client.Request{Model: "wait", Inputs: in}, func(*client.Response) error { return nil })
	}
	ways["generate"] = func(ctx context.Context) error {
		return all["binary"].(*client.HTTP).GenerateStream(ctx, &client.GenerateRequest{Model: "wait", Inputs: map[string]any{"X": 1}}, func(*client.Generated) error { return nil })
	}
	for way, send := range ways {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- send(ctx) }()
		<-echo.Waiting
		cancel()
		err := <-done
		if e, refused := errors.AsType[*client.Error](err); !errors.Is(err, context.Canceled) && (!refused || e.Status != "Canceled") {
			t.Errorf("%s: %v", way, err)
		}
		<-echo.Cancelled
	}
}

// TestOpenStream checks a stream with requests to several models: their responses, the error of one, and its end.
func TestOpenStream(t *testing.T) {
	t.Parallel()
	_, all := echoServer(t)
	s, err := all["grpc"].(*client.GRPC).OpenStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	in := client.Of("X", []int64{1}, float32(1))
	for _, model := range []string{"echo", "fail", "repeat"} {
		req := &client.Request{Model: model, ID: model, Inputs: []client.Tensor{in}, Parameters: map[string]any{"triton_enable_empty_final_response": true}}
		if model == "repeat" {
			req.Inputs = []client.Tensor{client.Of("IN", []int64{2}, int32(3), 4)}
		}
		if err := s.Send(req); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Send(&client.Request{Parameters: map[string]any{"x": 'x'}}); err == nil {
		t.Error("a parameter of another type is sent")
	}
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	final, outputs := map[string]bool{}, map[string]int{}
	for {
		resp, err := s.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if e, refused := errors.AsType[*client.Error](err); refused {
			if resp == nil || resp.ID != "fail" || !strings.Contains(e.Text, `it went "wrong"`) {
				t.Errorf("%+v, %v", resp, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		final[resp.ID] = final[resp.ID] || resp.Final()
		outputs[resp.ID] += len(resp.Outputs)
	}
	if d := cmp.Diff(map[string]int{"echo": 1, "repeat": 2}, outputs); d != "" || !final["echo"] || !final["repeat"] {
		t.Errorf("outputs (-want +got): %s final %v", d, final)
	}
}

// TestGenerate checks the generate extension: one response, several, errors, and a consumer that leaves.
func TestGenerate(t *testing.T) {
	t.Parallel()
	_, all := echoServer(t)
	c := all["binary"].(*client.HTTP)
	g, err := c.Generate(t.Context(), &client.GenerateRequest{Model: "echo", Inputs: map[string]any{"X": []float32{1, 2.5}}})
	if err != nil || g.Model != "echo" || g.Version != "1" {
		t.Fatalf("%+v, %v", g, err)
	}
	var x []float32
	if err := g.Decode("X", &x); err != nil || !cmp.Equal(x, []float32{1, 2.5}) {
		t.Errorf("%v, %v", x, err)
	}
	if err := errors.Join(g.Decode("Y", &x)); err == nil || !strings.Contains(err.Error(), "has no output 'Y'") {
		t.Error(err)
	}
	if err := g.Decode("X", new(string)); err == nil || !strings.Contains(err.Error(), "output 'X' of model 'echo'") {
		t.Error(err)
	}
	enough := errors.New("enough")
	for _, tt := range []struct {
		name, model string
		inputs      map[string]any
		want        int
		err         string
	}{
		{"several", "repeat", map[string]any{"IN": []int{4, 5, 6}}, 3, ""},
		{"failure after two", "repeat", map[string]any{"IN": []int{4, 5, -1}}, 2, "element 2 is negative"},
		{"taken no further", "endless", map[string]any{"IN": []int{1}}, 4, "enough"},
		{"unknown model", "nobody", nil, 0, "unknown model: 'nobody'"},
		{"no JSON", "echo", map[string]any{"X": func() {}}, 0, "the inputs cannot be written as JSON"},
	} {
		n := 0
		err := c.GenerateStream(t.Context(), &client.GenerateRequest{Model: tt.model, Inputs: tt.inputs}, func(g *client.Generated) error {
			if n++; g.Model != tt.model {
				t.Errorf("%s: %+v", tt.name, g)
			}
			if n == 4 {
				return enough
			}
			return nil
		})
		if n != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %d responses, %v; want %d, %s", tt.name, n, err, tt.want, tt.err)
		}
	}
}

// TestEvents checks streams of events in forms that other servers send, and broken ones.
func TestEvents(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		body, err string
		want      int
	}{
		{"data: {\"model_name\":\"m\"}\n\ndata:{\"model_name\":\"m\"}\r\n\r\n", "", 2},
		{": comment\nevent: x\ndata: {\"model_name\":\ndata: \"m\"}\n\n", "", 1}, // two lines are one event
		{"data: {\"model_name\":\"m\"}", "", 1},                                  // without its blank line
		{"", "", 0},
		{"data: {\"model_name\":\"m\"}\n\ndata: {\"error\":\"gone\"}\n\n", "error: gone", 1},
		{"data: nonsense\n\n", "the response is not JSON", 0},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, tt.body) }))
		n := 0
		c := client.NewHTTP(s.URL, nil)
		err := c.GenerateStream(t.Context(), &client.GenerateRequest{Model: "m"}, func(*client.Generated) error { n++; return nil })
		if n != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%q: %d events, %v", tt.body, n, err)
		}
		_ = c.Close()
		s.Close()
	}
}

// busyServer refuses calls and then responds.
type busyServer struct {
	inference.UnimplementedGRPCInferenceServiceServer
	left, calls atomic.Int32
	trailer     string
	delay       time.Duration
}

func (b *busyServer) refuse(ctx context.Context) error {
	b.calls.Add(1)
	if b.left.Add(-1) < 0 {
		return nil
	}
	if b.trailer != "" {
		_ = grpc.SetTrailer(ctx, metadata.Pairs("retry-after", b.trailer))
	}
	s := status.New(codes.Unavailable, "busy")
	if b.delay > 0 {
		s, _ = s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(b.delay)})
	}
	return s.Err()
}

func (b *busyServer) ModelInfer(ctx context.Context, _ *inference.ModelInferRequest) (*inference.ModelInferResponse, error) {
	return &inference.ModelInferResponse{ModelName: "m"}, b.refuse(ctx)
}

func (b *busyServer) RepositoryModelLoad(ctx context.Context, _ *inference.RepositoryModelLoadRequest) (*inference.RepositoryModelLoadResponse, error) {
	return &inference.RepositoryModelLoadResponse{}, b.refuse(ctx)
}

// TestRetryGRPC checks which calls are sent again over gRPC, and the time that errors have.
func TestRetryGRPC(t *testing.T) {
	t.Parallel()
	infer := func(ctx context.Context, c *client.GRPC) error {
		_, err := c.Infer(ctx, &client.Request{Model: "m"})
		return err
	}
	for _, tt := range []struct {
		name    string
		retry   *client.Retry
		left    int32
		trailer string
		delay   time.Duration
		send    func(ctx context.Context, c *client.GRPC) error
		calls   int32
		after   time.Duration // of the error
	}{
		{"twice refused", &client.Retry{Attempts: 3}, 2, "", time.Microsecond, infer, 3, 0},
		{"too often", &client.Retry{Attempts: 2}, 9, "", time.Microsecond, infer, 2, time.Microsecond},
		{"off", nil, 1, "", time.Microsecond, infer, 1, time.Microsecond},
		{"no time", &client.Retry{Attempts: 3}, 1, "", 0, infer, 1, 0},
		{"the trailer of a Tutti server", &client.Retry{Attempts: 3, MaxWait: time.Second}, 1, "3", 0, infer, 1, 3 * time.Second},
		{"a sequence", &client.Retry{Attempts: 3}, 1, "", time.Microsecond, func(ctx context.Context, c *client.GRPC) error {
			_, err := c.Infer(ctx, &client.Request{Model: "m", Sequence: &client.Sequence{ID: 7}})
			return err
		}, 1, time.Microsecond},
		{"a load", &client.Retry{Attempts: 3}, 1, "", time.Microsecond, func(ctx context.Context, c *client.GRPC) error { return c.Load(ctx, "m") }, 1, time.Microsecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			busy := &busyServer{trailer: tt.trailer, delay: tt.delay}
			busy.left.Store(tt.left)
			s := grpc.NewServer()
			inference.RegisterGRPCInferenceServiceServer(s, busy)
			l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a test's own socket
			if err != nil {
				t.Fatal(err)
			}
			go func() { _ = s.Serve(l) }()
			defer s.Stop()
			c, err := client.NewGRPC(l.Addr().String(), &client.Options{Retry: tt.retry})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			err = tt.send(t.Context(), c)
			if busy.calls.Load() != tt.calls || (err == nil) != (tt.left < tt.calls) {
				t.Errorf("%d calls, %v; want %d", busy.calls.Load(), err, tt.calls)
			}
			if e, refused := errors.AsType[*client.Error](err); err != nil && (!refused || e.Status != "Unavailable" || e.Text != "busy" || e.RetryAfter != tt.after) {
				t.Errorf("error %#v", err)
			}
		})
	}
}

// TestShared checks the memory that CreateShared makes, and its errors.
func TestShared(t *testing.T) {
	t.Parallel()
	key := "/tutti-client-test-" + strings.ReplaceAll(t.TempDir(), "/", "-")
	m, err := client.CreateShared(key, 64)
	if err != nil {
		t.Fatal(err)
	}
	m.Bytes[8] = 7
	got, err := m.Tensor(&client.Tensor{Name: "X", DType: tensor.Uint8, Shape: []int64{2}}, client.Region{Offset: 8, Size: 2})
	if err != nil || got.Data[0] != 7 || len(got.Data) != 2 || got.Name != "X" {
		t.Errorf("%+v, %v", got, err)
	}
	for _, r := range []client.Region{{Offset: 63, Size: 2}, {Offset: 1<<64 - 1, Size: 2}} {
		if _, err := m.Tensor(&client.Tensor{}, r); err == nil {
			t.Errorf("%+v is in memory of 64 bytes", r)
		}
	}
	if _, err := client.CreateShared(key, 64); err == nil || !strings.Contains(err.Error(), "file exists") {
		t.Errorf("the same key twice: %v", err)
	}
	for _, bad := range []string{"", "/", "/a/b", "/.."} {
		if _, err := client.CreateShared(bad, 1); err == nil || !strings.Contains(err.Error(), "is no key of shared memory") {
			t.Errorf("key '%s': %v", bad, err)
		}
	}
	if _, err := client.CreateShared(key+"x", 0); err == nil {
		t.Error("memory of no bytes")
	}
	if err := errors.Join(m.Close(), m.Close()); err != nil {
		t.Error(err)
	}
}

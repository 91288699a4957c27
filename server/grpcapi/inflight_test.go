package grpcapi_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"tutti/core/infer"
	"tutti/proto/inference"
	"tutti/server/grpcapi"
	"tutti/server/servertest"
)

// counter returns a limit that nothing of is used when the test has ended.
func counter(t *testing.T, limit int64) *infer.InFlight {
	t.Helper()
	f := infer.NewInFlight(limit)
	t.Cleanup(func() {
		if n := f.Bytes(); n != 0 {
			t.Errorf("%d bytes are left in flight", n)
		}
	})
	return f
}

// bytesRequest has n bytes.
func bytesRequest(model string, n int) *inference.ModelInferRequest {
	return &inference.ModelInferRequest{
		ModelName: model, Id: "me", RawInputContents: [][]byte{make([]byte, n)},
		Inputs: []*inference.ModelInferRequest_InferInputTensor{{Name: "X", Datatype: "UINT8", Shape: []int64{int64(n)}}},
	}
}

// TestInFlight has one request hold most of what there is, while others are refused,
// until it is over.
//
// shows: limits
func TestInFlight(t *testing.T) {
	t.Parallel()
	const limit, most = 1 << 20, 1<<20 - 4096
	f := counter(t, limit)
	e := servertest.NewEcho()
	c, _, _ := serveWith(t, grpcapi.Settings{Infer: e, Catalog: e, InFlight: f}, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)))
	ctx, cancel := context.WithCancel(t.Context())
	held := make(chan error, 1)
	go func() {
		_, err := c.ModelInfer(ctx, bytesRequest("wait", most))
		held <- err
	}()
	<-e.Waiting
	if n := f.Bytes(); n < most || n > limit {
		t.Fatalf("%d bytes in flight, want about %d", n, most)
	}
	stream, err := c.ModelStreamInfer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		n    int
		code codes.Code
		want string
	}{
		{"small", 100, codes.OK, ""},
		{"large", most, codes.Unavailable, "no room for"},
		{"for ever", limit + 1, codes.ResourceExhausted, "larger than max"},
	} {
		var trailer metadata.MD
		_, err := c.ModelInfer(t.Context(), bytesRequest("echo", tt.n), grpc.Trailer(&trailer))
		if status.Code(err) != tt.code || !strings.Contains(status.Convert(err).Message(), tt.want) {
			t.Errorf("%s: %v, want %v, %s", tt.name, err, tt.code, tt.want)
		}
		if later := len(trailer["retry-after"]) > 0; later != (tt.code == codes.Unavailable) {
			t.Errorf("%s: trailer %v", tt.name, trailer)
		}
	}
	for _, n := range []int{100, most, 100} {
		if err := stream.Send(bytesRequest("echo", n)); err != nil {
			t.Fatal(err)
		}
		m, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if got := m.GetErrorMessage(); strings.Contains(got, "no room for") != (n == most) || m.GetInferResponse().GetId() != "me" {
			t.Errorf("stream, %d bytes: %q, id %q", n, got, m.GetInferResponse().GetId())
		}
	}
	cancel()
	<-held
	<-e.Cancelled
	for f.Bytes() >= most { // until the server has seen it
		if _, err := c.ServerLive(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.ModelInfer(t.Context(), bytesRequest("echo", most/2)); err != nil {
		t.Error(err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Error(err)
	}
	_, _ = stream.Recv()
	drained(t, f)
}

// drained waits for what the transport still has to give back.
func drained(t *testing.T, f *infer.InFlight) {
	t.Helper()
	over := time.After(10 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for f.Bytes() > 0 {
		select {
		case <-tick.C:
		case <-over:
			t.Errorf("%d bytes are left in flight", f.Bytes())
			return
		}
	}
}

// TestInFlightFull refuses calls before they are read.
func TestInFlightFull(t *testing.T) {
	t.Parallel()
	f := infer.NewInFlight(1000)
	f.Add(1000)
	e := servertest.NewEcho()
	c, _, _ := serveWith(t, grpcapi.Settings{Infer: e, Catalog: e, InFlight: f})
	_, err := c.ModelInfer(t.Context(), bytesRequest("echo", 10))
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "no room for another request: 1000 bytes are in flight, and the limit is 1000") {
		t.Error(err)
	}
	f.Give(1000)
	if _, err := c.ModelInfer(t.Context(), bytesRequest("echo", 10)); err != nil {
		t.Error(err)
	}
	drained(t, f)
}

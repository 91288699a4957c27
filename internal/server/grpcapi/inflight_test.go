package grpcapi_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/server/grpcapi"
	"github.com/tutti-server/tutti/internal/server/servertest"
	"github.com/tutti-server/tutti/proto/inference"
)

// counter returns a limit. Nothing of it may be in use when the test ends.
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

// bytesRequest returns a request with n bytes.
func bytesRequest(model string, n int) *inference.ModelInferRequest {
	return &inference.ModelInferRequest{
		ModelName: model, Id: "me", RawInputContents: [][]byte{make([]byte, n)},
		Inputs: []*inference.ModelInferRequest_InferInputTensor{{Name: "X", Datatype: "UINT8", Shape: []int64{int64(n)}}},
	}
}

// TestInFlight checks that requests are refused while another one uses most of the limit, and accepted after it has
// ended.
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
	for f.Bytes() >= most { // until the server has processed the end
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
	if _, err := c.ModelInfer(t.Context(), bytesRequest("echo", limit+1)); status.Code(err) != codes.ResourceExhausted {
		t.Error(err)
	}
	drained(t, f)
}

// TestInFlightTooLarge checks that a message over the limit is refused with its size, however much of it comes before its call begins, and
// that the connection's other calls go on.
// shows: limits
func TestInFlightTooLarge(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20
	f := counter(t, limit)
	e := servertest.NewEcho()
	c, _, _ := serveWith(t, grpcapi.Settings{Infer: e, Catalog: e, InFlight: f})
	ctx, cancel := context.WithCancel(t.Context())
	held := make(chan error, 1)
	go func() {
		_, err := c.ModelInfer(ctx, bytesRequest("wait", 100))
		held <- err
	}()
	<-e.Waiting
	for range 50 {
		if _, err := c.ModelInfer(t.Context(), bytesRequest("echo", 4*limit)); status.Code(err) != codes.ResourceExhausted {
			t.Fatal(err)
		}
	}
	cancel()
	if err := <-held; status.Code(err) != codes.Canceled {
		t.Errorf("the call that was open: %v", err)
	}
	<-e.Cancelled
	drained(t, f)
}

// drained waits until the transport has released all its bytes.
func drained(t *testing.T, f *infer.InFlight) {
	t.Helper()
	over := time.After(5 * time.Minute)
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

// TestInFlightHalf checks clients that stop or disconnect in the middle of a message: the bytes sent so far count
// until then, and a call that exceeds the limit ends.
func TestInFlightHalf(t *testing.T) {
	t.Parallel()
	const limit = 4 << 20
	f := counter(t, limit)
	e := servertest.NewEcho()
	_, conn, _ := serveWith(t, grpcapi.Settings{Infer: e, Catalog: e, InFlight: f})
	address := conn.Target()
	var held []net.Conn
	for range 3 {
		held = append(held, half(t, address, 1<<20))
	}
	for f.Bytes() < 3*(1<<20+128<<10) { // what has come, and the piece that comes next
		runtime.Gosched()
	}
	callEnds(t, half(t, address, 3<<20))
	if n := f.Bytes(); n > limit {
		t.Errorf("%d bytes in flight after the call has ended", n)
	}
	if f.Refused() != 1 {
		t.Errorf("%d refused, want 1", f.Refused())
	}
	for _, c := range held {
		_ = c.Close()
	}
	drained(t, f)
}

// TestInFlightStalled checks clients that stop sending, one in the middle of a message and one after it.
func TestInFlightStalled(t *testing.T) {
	t.Parallel()
	f := counter(t, 8<<20)
	e := servertest.NewEcho()
	c, conn, _ := serveWith(t, grpcapi.Settings{Infer: e, Catalog: e, InFlight: f, StallTimeout: time.Second})
	if _, err := c.ModelInfer(t.Context(), bytesRequest("echo", 3<<20)); err != nil {
		t.Fatal(err)
	}
	callEnds(t, half(t, conn.Target(), 2<<20))
	drained(t, f)
	if s := conn.GetState(); s != connectivity.Ready {
		t.Errorf("the connection that waits for nothing is %v", s)
	}
}

// half starts a call with a message of 4 MB and sends n bytes of it.
func half(t *testing.T, address string, n int) net.Conn {
	t.Helper()
	return call(t, address, append([]byte{0, 0, 63, 0, 0}, make([]byte, n)...), false) // nearly 4 MB
}

// call sends the data of a call to ModelInfer, and with end its end. It reads no more than it must to be able to send.
func call(t *testing.T, address string, data []byte, end bool) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	fr := begin(c, 1)
	// The server extends the stream's window with its settings and with frames.
	for room := int64(65535); len(data) > 0; {
		for room < 16<<10 {
			got, err := fr.ReadFrame()
			if err != nil {
				return c // the call was refused
			}
			if w, ok := got.(*http2.WindowUpdateFrame); ok && w.StreamID == 1 {
				room += int64(w.Increment)
			}
			if s, ok := got.(*http2.SettingsFrame); ok {
				if size, ok := s.Value(http2.SettingInitialWindowSize); ok {
					room += int64(size) - 65535
				}
			}
		}
		n := min(len(data), 16<<10)
		if err := fr.WriteData(1, end && n == len(data), data[:n]); err != nil {
			return c
		}
		data, room = data[n:], room-int64(n)
	}
	return c
}

// callEnds reads until the server has ended the call of a connection that call has begun.
func callEnds(t *testing.T, c net.Conn) {
	t.Helper()
	fr := http2.NewFramer(nil, c)
	for {
		frame, err := fr.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if h, ok := frame.(*http2.HeadersFrame); ok && h.StreamEnded() {
			return
		}
	}
}

// begin opens calls of ModelInfer on a new connection, without their messages.
func begin(c net.Conn, calls int) *http2.Framer {
	_, _ = io.WriteString(c, http2.ClientPreface)
	fr := http2.NewFramer(c, c)
	_ = fr.WriteSettings()
	var headers bytes.Buffer
	h := hpack.NewEncoder(&headers)
	for i := range calls {
		headers.Reset()
		for _, f := range [][2]string{
			{":method", "POST"},
			{":scheme", "http"},
			{":path", inference.GRPCInferenceService_ModelInfer_FullMethodName},
			{":authority", "x"},
			{"content-type", "application/grpc"},
			{"te", "trailers"},
		} {
			_ = h.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
		}
		_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(1 + 2*i), BlockFragment: headers.Bytes(), EndHeaders: true}) //nolint:gosec // few
	}
	return fr
}

// TestInFlightFull checks that calls are refused before they are read.
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
	f.Release(1000)
	if _, err := c.ModelInfer(t.Context(), bytesRequest("echo", 10)); err != nil {
		t.Error(err)
	}
	drained(t, f)
}

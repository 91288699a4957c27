package grpcapi_test

import (
	"errors"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tutti-server/tutti/internal/server/grpcapi"
	"github.com/tutti-server/tutti/internal/server/servertest"
	"github.com/tutti-server/tutti/proto/inference"
)

// smallRequests returns n bytes of whole messages of a few bytes, or somewhat less.
func smallRequests(t *testing.T, n int) []byte {
	t.Helper()
	msg := framed(t, bytesRequest("echo", 10))
	var all []byte
	for len(all)+len(msg) <= n {
		all = append(all, msg...)
	}
	return all
}

// TestUnreadRequests checks streams whose clients send requests and read no responses while no bytes may be in flight: what the transport
// holds of them is bounded, because the connection of those that are too many is closed.
// shows: limits
func TestUnreadRequests(t *testing.T) {
	t.Parallel()
	const window, allowed = 4 << 20, 32
	f := counter(t, 64<<20)
	f.Add(64 << 20)
	defer f.Release(64 << 20)
	e := servertest.NewEcho()
	_, conn, _ := serveWith(t, grpcapi.Settings{Infer: e, Catalog: e, InFlight: f, StallTimeout: 10 * time.Second})
	c := dialRaw(t, conn.Target())
	ended := make(chan error, 1)
	go func() { // the windows of the streams are not extended, so that the server cannot send more than their first 64 KiB
		_, err := io.Copy(io.Discard, c.conn)
		ended <- err
	}()
	part := smallRequests(t, 16<<10)
	for range allowed + 1 {
		id := c.open(inference.GRPCInferenceService_ModelStreamInfer_FullMethodName)
		for n := 0; n+len(part) <= window; n += len(part) {
			if c.fr.WriteData(id, false, part) != nil {
				break // closed already
			}
		}
	}
	_ = c.conn.SetReadDeadline(time.Now().Add(time.Minute))
	if err := <-ended; errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection stays open")
	}
}

// TestReadRefusals checks a stream whose client reads while no bytes may be in flight: each request is refused, and the stream goes on.
func TestReadRefusals(t *testing.T) {
	t.Parallel()
	f := counter(t, 1<<20)
	f.Add(1 << 20)
	e := servertest.NewEcho()
	c, _, _ := serveWith(t, grpcapi.Settings{Infer: e, Catalog: e, InFlight: f})
	s, err := c.ModelStreamInfer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const n = 500
	go func() {
		for range n {
			_ = s.Send(bytesRequest("echo", 10)) // an error shows in Recv
		}
	}()
	for i := range n {
		r, err := s.Recv()
		if err != nil {
			t.Fatalf("after %d responses: %v", i, err)
		}
		if !strings.Contains(r.ErrorMessage, "no room for") {
			t.Errorf("response %d: %q", i, r.ErrorMessage)
		}
	}
	f.Release(1 << 20)
	if err := s.Send(bytesRequest("echo", 10)); err != nil {
		t.Fatal(err)
	}
	if r, err := s.Recv(); err != nil || r.ErrorMessage != "" {
		t.Errorf("with room again: %v, %v", r, err)
	}
}

// TestSmallRequestsCount checks that requests of a few bytes do not pass the limit, on a stream whose client reads nothing: each response that
// waits is charged what it costs besides its tensors.
// shows: limits
func TestSmallRequestsCount(t *testing.T) {
	t.Parallel()
	f := counter(t, 64<<10)
	e := servertest.NewEcho()
	_, conn, _ := serveWith(t, grpcapi.Settings{Infer: e, Catalog: e, InFlight: f})
	c := dialRaw(t, conn.Target())
	id := c.open(inference.GRPCInferenceService_ModelStreamInfer_FullMethodName)
	for range 8 { // 3,000 requests with 30 kB of tensors, and 6 MB with what they cost
		if err := c.fr.WriteData(id, false, smallRequests(t, 16<<10)); err != nil {
			t.Fatal(err)
		}
	}
	for over := time.Now().Add(time.Minute); f.Refused() == 0; runtime.Gosched() {
		if time.Now().After(over) {
			t.Fatalf("none is refused, %d bytes are in flight", f.Bytes())
		}
	}
	_ = c.conn.Close()
	drained(t, f)
}

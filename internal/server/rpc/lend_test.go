package rpc_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
)

// TestLend checks that a call that executes on the goroutine that reads the connection does not hold up the connection: other calls of the
// connection are served, and it can be cancelled.
func TestLend(t *testing.T) {
	t.Parallel()
	addr, e, _ := start(t, nil)
	c := testpb.NewTestServiceClient(dial(t, addr, plain()))
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(t.Context(), "x-wait", "1"))
	failed := make(chan error, 1)
	go func() {
		_, err := c.EmptyCall(ctx, &testpb.Empty{})
		failed <- err
	}()
	<-e.entered
	for range 3 {
		if _, err := c.UnaryCall(t.Context(), payload(10)); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := <-e.canceled; !errors.Is(err, context.Canceled) {
		t.Errorf("the handler's context: %v", err)
	}
	if err := <-failed; grpcstatus.Code(err) != codes.Canceled {
		t.Errorf("the call: %v", err)
	}
}

// TestLendMany has many clients call methods that return at once and methods that block for a while: clients of one connection, whose calls
// execute beside others, and clients with a connection each, whose calls execute on the goroutine that reads it.
func TestLendMany(t *testing.T) {
	t.Parallel()
	for name, shared := range map[string]bool{"one connection": true, "a connection each": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lendMany(t, shared)
		})
	}
}

func lendMany(t *testing.T, shared bool) {
	t.Helper()
	addr, e, _ := start(t, nil)
	one := testpb.NewTestServiceClient(dial(t, addr, plain()))
	const clients, calls = 16, 50
	var wg sync.WaitGroup
	for n := range clients {
		c := one
		if !shared {
			c = testpb.NewTestServiceClient(dial(t, addr, plain()))
		}
		wg.Go(func() {
			for i := range calls {
				ctx := t.Context()
				if i%10 == n%10 {
					ctx = metadata.AppendToOutgoingContext(ctx, "x-block", "1")
				}
				out, err := c.UnaryCall(ctx, payload(n*i))
				if err != nil || len(out.GetPayload().GetBody()) != n*i {
					t.Errorf("client %d, call %d: %d bytes, %v", n, i, len(out.GetPayload().GetBody()), err)
				}
			}
		})
	}
	for range clients * calls / 10 {
		<-e.entered
		e.release <- struct{}{}
	}
	wg.Wait()
}

// TestLendAlone checks that a short call executes on the goroutine that reads its connection if no other call of it is open, and on another
// one beside others.
func TestLendAlone(t *testing.T) {
	t.Parallel()
	addr, _, _ := start(t, nil)
	for name, tt := range map[string]struct {
		beside bool // a stream is open
		calls  int  // that arrive together
		want   string
	}{
		"alone":           {false, 1, "x-reader: true"},
		"beside a stream": {true, 1, "x-reader: false"},
		"together":        {false, 2, "x-reader: false"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := dialRaw(t, addr).connect()
			var out bytes.Buffer
			nc := r.fr
			r.fr = http2.NewFramer(&out, nil)
			if tt.beside {
				r.headers(1, false, fields(service+"FullDuplexCall"))
			}
			for i := range tt.calls {
				id := uint32(3 + 2*i) //nolint:gosec // two calls
				r.headers(id, false, fields(service+"UnaryCall", "x-goroutine", "1"))
				r.must(r.fr.WriteData(id, true, message(t, payload(1))))
			}
			r.fr = nc
			r.write(out.Bytes())
			for range tt.calls {
				e := r.next()
				for !e.end {
					e = r.next()
				}
				if !strings.Contains(e.text, tt.want) {
					t.Errorf("call %d: got %q, want %s", e.id, e.text, tt.want)
				}
			}
		})
	}
}

// TestDeadline checks that a call that waits for longer than its timeout ends, and that its handler knows.
func TestDeadline(t *testing.T) {
	t.Parallel()
	addr, e, _ := start(t, nil)
	r := dialRaw(t, addr).connect()
	r.headers(1, false, fields(service+"UnaryCall", "x-wait", "1", "grpc-timeout", "30m"))
	r.must(r.fr.WriteData(1, true, message(t, payload(1))))
	got := r.outcome(1)
	if err := <-e.canceled; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the handler's context: %v", err)
	}
	if last := got[len(got)-1]; last != "RST_STREAM CANCEL" && !strings.Contains(last, "grpc-status: 4") {
		t.Errorf("got %q", got)
	}
	// A message that does not come.
	r.headers(3, false, fields(service+"UnaryCall", "grpc-timeout", "30m"))
	got = r.outcome(3)
	if last := got[len(got)-1]; last != "RST_STREAM CANCEL" && !strings.Contains(last, "grpc-status: 4") {
		t.Errorf("got %q", got)
	}
}

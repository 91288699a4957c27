package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/tutti-server/tutti/internal/server/rpc"
)

// TestDrain checks that GracefulStop serves the calls that are open, and those that come before their client knows.
func TestDrain(t *testing.T) {
	t.Parallel()
	addr, e, s := start(t, nil)
	r := dialRaw(t, addr).connect()
	call := func(id uint32, pairs ...string) {
		r.headers(id, false, fields(service+"UnaryCall", pairs...))
		r.must(r.fr.WriteData(id, true, message(t, payload(1))))
	}
	call(1, "x-block", "1")
	<-e.entered
	stopped := make(chan struct{})
	go func() {
		s.GracefulStop()
		close(stopped)
	}()
	r.ignored = false
	var ping event
	for !strings.HasPrefix(ping.text, "PING false") {
		ping = r.next()
	}
	r.ignored = true
	call(3)
	if got := r.outcome(3); got[len(got)-1] != "grpc-status: 0" {
		t.Errorf("before the ping is acknowledged: %q", got)
	}
	var data []byte
	_, err := fmt.Sscanf(ping.text, "PING false %x", &data)
	r.must(err)
	r.must(r.fr.WritePing(true, [8]byte(data)))
	if e := r.next(); !strings.HasPrefix(e.text, "GOAWAY NO_ERROR") {
		t.Errorf("got %q", e.text)
	}
	call(5) // has no response
	close(e.release)
	if got := r.outcome(1); got[len(got)-1] != "grpc-status: 0" {
		t.Errorf("the open call: %q", got)
	}
	if e := r.next(); e.text != "closed" {
		t.Errorf("got %q", e.text)
	}
	<-stopped
}

// TestStop checks that Stop cancels calls.
func TestStop(t *testing.T) {
	t.Parallel()
	addr, e, s := start(t, nil)
	c := testpb.NewTestServiceClient(dial(t, addr, plain()))
	failed := make(chan error, 1)
	go func() {
		_, err := c.UnaryCall(metadata.AppendToOutgoingContext(t.Context(), "x-wait", "1"), payload(1))
		failed <- err
	}()
	<-e.entered
	graceful := make(chan struct{})
	go func() {
		s.GracefulStop()
		close(graceful)
	}()
	s.Stop()
	if err := <-e.canceled; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := <-failed; grpcstatus.Code(err) != codes.Unavailable {
		t.Error(err)
	}
	<-graceful
}

// TestKeepalive checks the lifetime of connections, and that one whose client acknowledges no ping is closed.
func TestKeepalive(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		set  keepalive.ServerParameters
		want string
	}{
		"idle": {keepalive.ServerParameters{MaxConnectionIdle: 20 * time.Millisecond}, "GOAWAY NO_ERROR max_idle"},
		"old":  {keepalive.ServerParameters{MaxConnectionAge: 20 * time.Millisecond, MaxConnectionAgeGrace: 20 * time.Millisecond}, "GOAWAY NO_ERROR max_age"},
		"dead": {keepalive.ServerParameters{Time: time.Second, Timeout: 20 * time.Millisecond}, "PING false 0000000000000000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr, _, _ := start(t, func(s *rpc.Settings) { s.Keepalive = tt.set })
			r := dialRaw(t, addr).connect()
			r.ignored = false
			var seen []string
			for {
				e := r.next()
				seen = append(seen, e.text)
				if e.text == "closed" {
					t.Fatalf("got %q", seen)
				}
				if e.text == tt.want {
					break
				}
			}
			r.ignored = true
			for e := r.next(); e.text != "closed"; e = r.next() {
				if e.end {
					t.Errorf("got %q", e.text)
				}
			}
		})
	}
}

package load_test

import (
	"crypto/tls"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tutti-server/tutti/internal/addresstest"
	"github.com/tutti-server/tutti/internal/load"
	"github.com/tutti-server/tutti/internal/server/servertest"
	"github.com/tutti-server/tutti/internal/shm"
)

// loopProtocols are the protocols whose clients can be part of a loop.
func loopProtocols() []string { return []string{load.JSON, load.Binary, load.Shared, load.GRPC} }

// dialLoop returns a loop and n clients that are part of it.
func dialLoop(t *testing.T, at load.Target, protocol string, requests []load.Request, n int) (*load.Loop, *load.Group) {
	t.Helper()
	l, err := load.NewLoop()
	if err != nil {
		t.Fatal(err)
	}
	at.Loop = l
	g, err := load.Dial(at, protocol, requests, n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l, g
}

// runLoop runs a coroutine for each client until all have ended.
func runLoop(t *testing.T, l *load.Loop, g *load.Group, do func(client int, c load.Client)) {
	t.Helper()
	left := len(g.Clients)
	for i, c := range g.Clients {
		l.Go(func() {
			defer func() { left-- }()
			do(i, c)
		})
	}
	for wait := time.Duration(0); left > 0; wait = time.Millisecond - wait { // both kinds of Poll in turn
		if err := l.Poll(wait); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLoop checks that each client of a loop reads its own responses, and when they arrived.
func TestLoop(t *testing.T) {
	t.Parallel()
	at := serve(t)
	var requests []load.Request
	for i := range 3 {
		requests = append(requests, load.Request{
			Model: "echo", Outputs: []string{"X"}, Inputs: []load.Tensor{load.Floats("X", []int64{2}, []float32{float32(i), 1})},
		})
	}
	for _, protocol := range loopProtocols() {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			needsMemory(t, protocol)
			l, g := dialLoop(t, at, protocol, requests, 6)
			most, now := 0, 0
			runLoop(t, l, g, func(client int, c load.Client) {
				for i := client; i < client+10; i++ {
					now++
					most = max(most, now)
					sent := time.Now()
					err := c.Do(i)
					now--
					if at := c.(load.Received).Received(); err != nil || at.Before(sent) || at.After(time.Now()) {
						t.Errorf("%v, sent %v, received %v, now %v", err, sent, at, time.Now())
					}
					if got, err := c.Outputs(); err != nil || len(got) != 1 || got[0].Floats[0] != float64(i%3) {
						t.Errorf("client %d got %v, %v", client, got, err)
					}
				}
			})
			if most != len(g.Clients) {
				t.Errorf("%d requests were under way at once, expected %d", most, len(g.Clients))
			}
		})
	}
}

// TestLoopLarge checks requests and responses that are larger than the buffers of sockets and the windows of HTTP/2.
func TestLoopLarge(t *testing.T) {
	t.Parallel()
	at := serve(t)
	values := make([]float32, 1<<20)
	for i := range values {
		values[i] = float32(i % 1000)
	}
	r := load.Request{Model: "echo", Outputs: []string{"X"}, Inputs: []load.Tensor{load.Floats("X", []int64{1 << 20}, values)}}
	for _, protocol := range []string{load.Binary, load.GRPC} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			l, g := dialLoop(t, at, protocol, []load.Request{r}, 2*load.Streams)
			runLoop(t, l, g, func(_ int, c load.Client) {
				for i := range 2 {
					if err := c.Do(i); err != nil {
						t.Error(err)
						return
					}
				}
				out, err := c.Outputs()
				if err != nil || len(out) != 1 || len(out[0].Floats) != 1<<20 || out[0].Floats[999] != 999 {
					t.Errorf("the response is not the request: %v", err)
				}
			})
		})
	}
}

// TestLoopInterrupt checks that another goroutine ends the request under way, and that further ones fail.
func TestLoopInterrupt(t *testing.T) {
	t.Parallel()
	e, regions := servertest.NewEcho(), shm.NewRegistry(true)
	at := serveEcho(t, e, regions)
	wait := load.Request{Model: "wait", Outputs: []string{"X"}, Inputs: []load.Tensor{load.Floats("X", []int64{1}, []float32{1})}}
	for _, protocol := range []string{load.Binary, load.GRPC} {
		l, g := dialLoop(t, at, protocol, []load.Request{wait}, 1)
		go func() {
			<-e.Waiting
			g.Interrupt()
		}()
		runLoop(t, l, g, func(_ int, c load.Client) {
			for range 2 {
				if c.Do(0) == nil {
					t.Errorf("%s: no error", protocol)
				}
			}
		})
		<-e.Cancelled
	}
}

// TestLoopErrors checks that a client of a loop reports a server that closes connections, or does not respond, and connects again.
func TestLoopErrors(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	var connections atomic.Int64
	go func() {
		for {
			conn, err := silent.Accept()
			if err != nil {
				return
			}
			connections.Add(1)
			t.Cleanup(func() { conn.Close() })
		}
	}()
	r := load.Request{Model: "m", Inputs: []load.Tensor{load.Floats("X", []int64{1}, []float32{1})}}
	for _, tt := range []struct {
		name, address string
		timeout       time.Duration
		http, grpc    string
	}{
		{"closes", listen(t, ""), 0, "EOF", "closed the connection"},
		{"silent", silent.Addr().String(), 50 * time.Millisecond, "timeout", "no response after"},
		{"refuses", addresstest.Unused(t), 0, "refused", "refused"},
	} {
		for protocol, want := range map[string]string{load.Binary: tt.http, load.GRPC: tt.grpc} {
			at := load.Target{HTTP: tt.address, GRPC: tt.address, Timeout: tt.timeout}
			l, g := dialLoop(t, at, protocol, []load.Request{r}, 1)
			runLoop(t, l, g, func(_ int, c load.Client) {
				for range 2 {
					if err := c.Do(0); err == nil || !strings.Contains(err.Error(), want) {
						t.Errorf("%s over %s: %v, want an error with '%s'", tt.name, protocol, err, want)
					}
				}
			})
		}
	}
	if n := connections.Load(); n != 4 {
		t.Errorf("%d connections to the server that does not respond, expected one for each of 4 requests", n)
	}
}

// TestCanLoop checks which clients can be part of a loop.
func TestCanLoop(t *testing.T) {
	t.Parallel()
	for _, protocol := range append(load.Protocols(), load.Stream, load.Events) {
		if can := (&load.Target{}).CanLoop(protocol); can != slices.Contains(loopProtocols(), protocol) {
			t.Errorf("%s: %v", protocol, can)
		}
		if (&load.Target{TLS: &tls.Config{}}).CanLoop(protocol) {
			t.Errorf("%s over TLS can be", protocol)
		}
	}
}

package remote_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tutti-server/tutti/client"
)

// expectError checks that a request failed with an error that has these texts.
func expectError(t *testing.T, what string, err error, texts ...string) {
	t.Helper()
	e, ok := errors.AsType[*client.Error](err)
	if !ok {
		t.Errorf("%s: %v, want an error of the server", what, err)
		return
	}
	for _, text := range texts {
		if !strings.Contains(e.Text, text) {
			t.Errorf("%s: error %q does not name %q", what, e.Text, text)
		}
	}
}

// serves checks that a server still serves its own model.
func serves(t *testing.T, what string, c client.Client) {
	t.Helper()
	if _, err := c.Infer(t.Context(), number("here", 1)); err != nil {
		t.Errorf("%s: the server's own model fails: %v", what, err)
	}
}

// listen calls serve for each connection to a new address, until the test ends.
func listen(t *testing.T, serve func(n int, c net.Conn)) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	all.Go(func() {
		for n := 0; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, c)
			mu.Unlock()
			all.Go(func() {
				serve(n, c)
				_ = c.Close()
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return l.Addr().String()
}

// probeShape is the configuration of a remote model with the inputs and outputs of probeConfig. It loads without its endpoint.
var probeShape = strings.ReplaceAll(probeConfig, `backend: "probe"`, "")

// settingsFrame is the empty SETTINGS frame with which a server of HTTP/2 begins.
const settingsFrame = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// TestNoGRPC lets endpoints send what is no gRPC: random bytes, at once or as frames of HTTP/2, a web page, nothing, or an end at once. Each
// request fails with the endpoint's name, over both protocols, and the server serves its own model.
func TestNoGRPC(t *testing.T) {
	t.Parallel()
	random := func(n int, c net.Conn) {
		r := rand.New(rand.NewPCG(1, uint64(n)))
		b := make([]byte, r.IntN(4096))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		_, _ = c.Write(b)
	}
	for name, serve := range map[string]func(n int, c net.Conn){
		"random bytes": random,
		"random frames": func(n int, c net.Conn) {
			_, _ = io.WriteString(c, settingsFrame)
			random(n, c)
		},
		"a web page": func(_ int, c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello") },
		"an end":     func(int, net.Conn) {},
		"nothing":    func(_ int, c net.Conn) { _, _ = io.Copy(io.Discard, c) },
		"settings":   func(_ int, c net.Conn) { _, _ = io.WriteString(c, settingsFrame); _, _ = io.Copy(io.Discard, c) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := listen(t, serve)
			if _, err := load(t, to(address, "", "load_timeout=300ms"), false); err == nil || !strings.Contains(err.Error(), address) {
				t.Errorf("loading: %v, want an error that names the endpoint", err)
			}
			near := start(t, nil, map[string]string{"here": probeConfig, "m": to(address, probeShape, "load_timeout=300ms", "timeout=300ms", "idempotent=true")})
			for door, c := range dial(t, near) {
				for range 10 {
					_, err := c.Infer(t.Context(), number("m", 1))
					expectError(t, door, err, "model 'm' at '"+address+"'")
				}
				serves(t, door, c)
			}
			if near.Ready() {
				t.Error("ready with an endpoint that is none")
			}
		})
	}
}

// TestCorrupted changes bytes between a server and its endpoint, in either direction, when the model is loaded: requests may fail, with the
// endpoint's name, and the server serves its own model.
func TestCorrupted(t *testing.T) {
	t.Parallel()
	far := start(t, nil, map[string]string{"m": probeConfig})
	var loaded atomic.Bool
	address := listen(t, func(n int, near net.Conn) {
		back, err := new(net.Dialer).DialContext(context.WithoutCancel(t.Context()), "tcp", far.GRPCAddress())
		if err != nil {
			return
		}
		defer back.Close()
		var both sync.WaitGroup
		pass := func(seed uint64, to, from net.Conn) {
			defer func() { _, _ = to.Close(), from.Close() }()
			r := rand.New(rand.NewPCG(seed, uint64(n)))
			b := make([]byte, 4096)
			for {
				k, err := from.Read(b)
				if k > 0 && loaded.Load() && r.IntN(4) == 0 {
					b[r.IntN(k)] ^= 1 << r.IntN(8)
				}
				if _, failed := to.Write(b[:k]); err != nil || failed != nil {
					return
				}
			}
		}
		both.Go(func() { pass(1, near, back) })
		both.Go(func() { pass(2, back, near) })
		both.Wait()
	})
	near := start(t, nil, map[string]string{"here": probeConfig, "m": to(address, probeShape, "load_timeout=300ms", "timeout=300ms")})
	loaded.Store(true)
	for door, c := range dial(t, near) {
		for range 200 {
			if _, err := c.Infer(t.Context(), number("m", 1)); err != nil {
				expectError(t, door, err, "model 'm' at '"+address+"'")
			}
		}
		serves(t, door, c)
	}
}

package sock_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/tutti-server/tutti/internal/server/sock"
)

// pair returns the two ends of a connection.
func pair(tb testing.TB) (here *sock.Conn, there net.Conn) {
	tb.Helper()
	bound, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // loopback
	if err != nil {
		tb.Fatal(err)
	}
	l := sock.Listener{Listener: bound}
	defer l.Close()
	there, err = net.Dial("tcp", l.Addr().String()) //nolint:noctx // loopback
	if err != nil {
		tb.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		tb.Fatal(err)
	}
	here = c.(*sock.Conn) //nolint:forcetypeassert // it is
	tb.Cleanup(func() {
		_ = here.Close() // one of them may be closed already
		_ = there.Close()
	})
	return here, there
}

// TestConn writes pieces of random sizes in both directions at once, then checks the end of the stream.
func TestConn(t *testing.T) {
	t.Parallel()
	here, there := pair(t)
	sent := make([]byte, 5<<20)
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test
	for i := range sent {
		sent[i] = byte(r.Uint32())
	}
	var wait sync.WaitGroup
	for _, way := range []struct{ from, to net.Conn }{{here, there}, {there, here}} {
		wait.Go(func() {
			for rest := sent; len(rest) > 0; {
				n := min(len(rest), len(rest)%(300<<10)+1)
				if got, err := way.from.Write(rest[:n]); got != n || err != nil {
					t.Errorf("wrote %d of %d: %v", got, n, err)
					return
				}
				rest = rest[n:]
			}
		})
		wait.Go(func() {
			got := make([]byte, len(sent))
			if _, err := io.ReadFull(way.to, got); err != nil || !bytes.Equal(got, sent) {
				t.Errorf("read something else: %v", err)
			}
		})
	}
	wait.Wait()
	if err := there.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := here.Read(sent); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %d bytes, %v", n, err)
	}
}

// TestEnds checks that deadlines and Close end a pending read, and that a reset by the peer is an error.
func TestEnds(t *testing.T) {
	t.Parallel()
	here, there := pair(t)
	if err := here.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := here.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("at the deadline: %v", err)
	}
	if err := here.SetDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if err := there.(*net.TCPConn).SetLinger(0); err != nil { //nolint:forcetypeassert // it is
		t.Fatal(err)
	}
	if err := there.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := here.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("after a reset: %v", err)
	}
	if _, err := here.Write([]byte("to a closed connection")); err == nil {
		t.Error("wrote to a closed connection")
	}
	if err := here.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := here.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	other, _ := pair(t)
	done := make(chan error, 1)
	go func() {
		_, err := other.Read(make([]byte, 1))
		done <- err
	}()
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed while it waits: %v", err)
	}
}

func TestConnAllocs(t *testing.T) {
	here, there := pair(t)
	p, q := make([]byte, 64), make([]byte, 64)
	if n := testing.AllocsPerRun(1000, func() {
		if _, err := there.Write(p); err != nil {
			t.Fatal(err)
		}
		if n, err := here.Read(q); err != nil || n == 0 {
			t.Fatal(n, err)
		}
	}); n >= 1 {
		t.Errorf("%v allocations, want 0", n)
	}
}

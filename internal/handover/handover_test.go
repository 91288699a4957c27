package handover_test

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/internal/handover"
)

// offered is an offer of one socket.
type offered struct {
	*handover.Offer
	address string
	l       *net.TCPListener
	left    chan int
	failed  chan error
}

func open(t *testing.T) *offered {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a test's own socket
	if err != nil {
		t.Fatal(err)
	}
	o := &offered{address: l.Addr().String(), l: l.(*net.TCPListener), left: make(chan int, 1), failed: make(chan error, 4)}
	o.Offer, err = handover.Open(o.address, handover.Settings{
		Sockets: []handover.Socket{{Name: "http", Listener: o.l}},
		Leave:   func(pid int) { o.left <- pid; _ = o.l.Close() },
		Failed:  func(_ int, err error) { o.failed <- err },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(o.Close(), o.l.Close()) })
	return o
}

func take(t *testing.T, address string) *handover.Taken {
	t.Helper()
	got, err := handover.Take(t.Context(), "127.0.0.1:1", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = got.Close() })
	return got
}

// TestHandover passes a socket on, with a connection that waits to be accepted.
func TestHandover(t *testing.T) {
	t.Parallel()
	o := open(t)
	waiting, err := net.Dial("tcp", o.address) //nolint:noctx // a test's own socket
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = waiting.Close() }()
	got := take(t, o.address)
	if got.PID != os.Getpid() || len(got.Sockets) != 1 || got.Sockets[0].Name != "http" || got.Sockets[0].Listener.Addr().String() != o.address {
		t.Fatalf("took %+v", got)
	}
	if err := got.Ready(); err != nil {
		t.Fatal(err)
	}
	if pid := <-o.left; pid != os.Getpid() {
		t.Errorf("left for process %d", pid)
	}
	c, err := got.Sockets[0].Listener.Accept()
	if err != nil || c.RemoteAddr().String() != waiting.LocalAddr().String() {
		t.Fatalf("accepted %v, %v", c, err)
	}
	_ = c.Close()
	again, err := handover.Open(o.address, handover.Settings{})
	if err != nil {
		t.Fatalf("the name is not free: %v", err)
	}
	_ = again.Close()
}

// TestFailed checks that the server goes on after a process that fails, dies, or says something else, and that only one takes over
// at a time.
func TestFailed(t *testing.T) {
	t.Parallel()
	o := open(t)
	first := take(t, o.address)
	if _, err := handover.Take(t.Context(), o.address); err == nil || !strings.Contains(err.Error(), "is taking over already") {
		t.Errorf("a second process: %v", err)
	}
	if err := first.Fail(errors.New("model 'a' is broken")); err != nil {
		t.Fatal(err)
	}
	if err := <-o.failed; err.Error() != "model 'a' is broken" {
		t.Errorf("the reason is %v", err)
	}
	_ = take(t, o.address).Close()
	if err := <-o.failed; !strings.Contains(err.Error(), "ended before it was ready") {
		t.Errorf("of a process that died: %v", err)
	}
	c, err := net.Dial("unix", "@tutti-upgrade/"+o.address) //nolint:noctx // a test's own socket
	if err != nil {
		t.Fatal(err)
	}
	_, _ = c.Write([]byte("GET / HTTP/1.1\r\n"))
	if err := <-o.failed; !strings.Contains(err.Error(), `it sent "GET / HTTP/1.1\r\n"`) {
		t.Errorf("of a stranger: %v", err)
	}
	_ = c.Close()
	if err := take(t, o.address).Ready(); err != nil || <-o.left != os.Getpid() {
		t.Errorf("after failures: %v", err)
	}
}

// TestNone checks an address without a server, and one whose server has ended.
func TestNone(t *testing.T) {
	t.Parallel()
	o := open(t)
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := handover.Take(context.Background(), o.address); !errors.Is(err, handover.ErrNone) {
		t.Errorf("got %v", err)
	}
}

package tutti //nolint:testpackage // a socket before it listens is not exported

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/tutti-server/tutti/internal/options"
)

// TestSocket checks that ports are taken before anything listens at them.
func TestSocket(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"127.0.0.1", "localhost", "0.0.0.0", ""} {
		s := &socket{fd: -1}
		if err := s.bind(t.Context(), &options.Endpoint{Address: host}); err != nil {
			t.Fatalf("%s: %v", host, err)
		}
		l, err := s.listen()
		if err != nil {
			t.Fatalf("%s: %v", host, err)
		}
		_, port, _ := net.SplitHostPort(l.Addr().String())
		go func() {
			if c, err := l.Accept(); err == nil {
				_ = c.Close()
			}
		}()
		if err := dial(t.Context(), "127.0.0.1:"+port); err != nil {
			t.Errorf("%s listens, and there is no connection: %v", host, err)
		}
		if err := errors.Join(l.Close(), s.close()); err != nil {
			t.Error(err)
		}
	}
}

// TestSocketTaken checks the errors for a port of another program, a port that two services of this program share,
// and a port that is bound but not listening. It uses a separate address, at which no other test takes a released
// port.
func TestSocketTaken(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.83.0.1:0") //nolint:noctx // a test's own socket
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_, text, _ := net.SplitHostPort(l.Addr().String())
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	o := &options.Options{}
	o.GRPC.Endpoint = options.Endpoint{Enabled: true, Address: "127.83.0.1"}
	o.Metrics.Endpoint = options.Endpoint{Enabled: true, Address: "127.83.0.1", Port: port}
	want := "failed to start Metrics service: Unavailable - Socket '127.83.0.1:" + text + "' already in use; use --metrics-port for another port"
	if _, err := takePorts(t.Context(), o); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("error = %v, want %s", err, want)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	o.HTTP.Endpoint = o.Metrics.Endpoint
	if _, err := takePorts(t.Context(), o); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("error = %v, want %s", err, want)
	}
	o.HTTP.Enabled = false
	s, err := takePorts(t.Context(), o)
	if err != nil || s.http != nil {
		t.Fatalf("%+v, %v", s, err)
	}
	if err := dial(t.Context(), l.Addr().String()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("what does not listen takes a connection: %v", err)
	}
	if err := s.close(); err != nil {
		t.Error(err)
	}
	o.Metrics.Endpoint = options.Endpoint{Enabled: true, Address: "no such host"}
	if _, err := takePorts(t.Context(), o); err == nil || !strings.Contains(err.Error(), "unable to listen at 'no such host:0': lookup") {
		t.Errorf("error = %v", err)
	}
}

func dial(ctx context.Context, address string) error {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err == nil {
		err = c.Close()
	}
	return err
}

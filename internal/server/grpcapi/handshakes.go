package grpcapi

import (
	"context"
	"net"
	"sync"
	"time"
)

// handshakes counts the connections that are accepted and that grpc has not begun to serve: at a graceful stop it would close
// them. The zero value is ready. It is safe for concurrent use.
type handshakes struct {
	mu   sync.Mutex
	open int           // guarded by mu
	none chan struct{} // closed when open is 0; nil if nothing waits; guarded by mu
}

func (h *handshakes) add(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open += n; h.open == 0 && h.none != nil {
		close(h.none)
		h.none = nil
	}
}

// wait returns when no connection is open, or ctx is done.
func (h *handshakes) wait(ctx context.Context) {
	h.mu.Lock()
	if h.open == 0 {
		h.mu.Unlock()
		return
	}
	if h.none == nil {
		h.none = make(chan struct{})
	}
	none := h.none
	h.mu.Unlock()
	select {
	case <-none:
	case <-ctx.Done():
	}
}

// acceptor counts the connections that it accepts.
type acceptor struct {
	net.Listener
	all *handshakes
}

// Accept returns the next connection.
func (a *acceptor) Accept() (net.Conn, error) {
	c, err := a.Listener.Accept()
	if err != nil {
		return nil, err
	}
	a.all.add(1)
	return &acceptedConn{Conn: c, all: a.all}, nil
}

// acceptedConn is counted until grpc sets its first deadline, with which a handshake begins, or closes it.
type acceptedConn struct {
	net.Conn
	all  *handshakes
	once sync.Once
}

func (c *acceptedConn) begun() { c.once.Do(func() { c.all.add(-1) }) }

// SetDeadline sets the deadline.
func (c *acceptedConn) SetDeadline(t time.Time) error {
	c.begun()
	return c.Conn.SetDeadline(t)
}

// Close closes the connection.
func (c *acceptedConn) Close() error {
	c.begun()
	return c.Conn.Close()
}

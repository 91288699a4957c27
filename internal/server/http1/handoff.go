package http1

import (
	"net"
	"sync"
	"sync/atomic"
)

// handoff is the listener from which net/http accepts the connections that this package hands over.
type handoff struct {
	listener atomic.Pointer[net.Listener] // on which the connections arrived
	conns    chan net.Conn
	done     chan struct{}
	once     sync.Once
}

var _ net.Listener = (*handoff)(nil)

// pass hands a connection over. It closes the connection once the server is closed.
func (h *handoff) pass(c net.Conn) {
	select {
	case h.conns <- c:
	case <-h.done:
		_ = c.Close() // the server is closed
	}
}

// Accept returns the next connection.
func (h *handoff) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

func (h *handoff) end() { h.once.Do(func() { close(h.done) }) }

// Close ends Accept. The owner of the original listener closes that.
func (h *handoff) Close() error {
	h.end()
	return nil
}

// Addr returns the address of the original listener.
func (h *handoff) Addr() net.Addr { return (*h.listener.Load()).Addr() }

// replayConn is a connection whose first bytes have been read already. Read returns them first.
type replayConn struct {
	*net.TCPConn
	ahead []byte
}

// Read returns the bytes read ahead, then reads from the connection.
func (c *replayConn) Read(p []byte) (int, error) {
	if len(c.ahead) == 0 {
		return c.TCPConn.Read(p)
	}
	n := copy(p, c.ahead)
	c.ahead = c.ahead[n:]
	return n, nil
}

package http1

import (
	"net"
	"sync"
	"sync/atomic"
)

// rest is a listener that hands out the connections that were begun here.
type rest struct {
	at    atomic.Pointer[net.Listener]
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

var _ net.Listener = (*rest)(nil)

// give hands a connection over, or closes it when nobody takes it any more.
func (r *rest) give(c net.Conn) {
	select {
	case r.conns <- c:
	case <-r.done:
		_ = c.Close() // the server is closed
	}
}

// Accept returns the next connection.
func (r *rest) Accept() (net.Conn, error) {
	select {
	case c := <-r.conns:
		return c, nil
	case <-r.done:
		return nil, net.ErrClosed
	}
}

func (r *rest) end() { r.once.Do(func() { close(r.done) }) }

// Close ends Accept; the listener itself is closed by its owner.
func (r *rest) Close() error {
	r.end()
	return nil
}

// Addr is where the connections came from.
func (r *rest) Addr() net.Addr { return (*r.at.Load()).Addr() }

// begun is a connection of which something has been read.
type begun struct {
	*net.TCPConn
	ahead []byte
}

// Read returns what was read already, then what comes.
func (b *begun) Read(p []byte) (int, error) {
	if len(b.ahead) == 0 {
		return b.TCPConn.Read(p)
	}
	n := copy(p, b.ahead)
	b.ahead = b.ahead[n:]
	return n, nil
}

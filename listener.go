package tutti

import (
	"net"
	"sync"
	"sync/atomic"
)

// listener is a listener that can stop to accept while its service goes on, for a process that has the same socket: connections
// that wait are accepted there. It is safe for concurrent use.
type listener struct {
	*net.TCPListener

	paused atomic.Bool
	closed chan struct{}
	once   sync.Once
}

func newListener(l *net.TCPListener) *listener {
	return &listener{TCPListener: l, closed: make(chan struct{})}
}

// Accept returns the next connection. After pause it waits for Close.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.AcceptTCP()
	if err == nil {
		return c, nil
	}
	if l.paused.Load() {
		<-l.closed
		err = net.ErrClosed
	}
	return nil, err
}

// pause closes this process's descriptor of the socket. Accept returns nothing more.
func (l *listener) pause() error {
	l.paused.Store(true)
	return l.TCPListener.Close()
}

// Close ends Accept.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	if l.paused.Load() {
		return nil
	}
	return l.TCPListener.Close()
}

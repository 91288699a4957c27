package http1

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// Server serves plain requests itself, and others by a http.Server.
type Server struct {
	std  *http.Server
	rest *rest // what goes to std
	shut chan struct{}
	*watches
	ended chan struct{} // closed with the last connection after shut

	mu        sync.Mutex
	closing   bool                      // guarded by mu
	conns     map[*conn]struct{}        // guarded by mu
	listeners map[net.Listener]struct{} // guarded by mu
}

// New returns a server with std's handler, its ReadHeaderTimeout, ReadTimeout, IdleTimeout and ErrorLog, if any. What it
// does not serve itself goes to std, which is its own from now on.
func New(std *http.Server) *Server {
	return &Server{
		std: std, rest: &rest{conns: make(chan net.Conn), done: make(chan struct{})}, shut: make(chan struct{}),
		watches: newWatches(),
		ended:   make(chan struct{}), conns: make(map[*conn]struct{}), listeners: make(map[net.Listener]struct{}),
	}
}

// Serve accepts connections on l, which it closes, until Shutdown or Close, and then returns http.ErrServerClosed.
func (s *Server) Serve(l net.Listener) error {
	if !s.enter(l) {
		return errors.Join(http.ErrServerClosed, l.Close())
	}
	s.rest.at.Store(&l)
	done := make(chan struct{})
	go func() {
		_ = s.std.Serve(s.rest) // it ends as accept does, or with this server
		close(done)
	}()
	err := s.accept(l)
	_ = l.Close() // what matters is err
	s.mu.Lock()
	delete(s.listeners, l)
	closing := s.closing
	s.mu.Unlock()
	if closing {
		err = http.ErrServerClosed
	} else {
		s.rest.end()
	}
	<-done
	return err
}

func (s *Server) enter(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	s.listeners[l] = struct{}{}
	return true
}

const longestPause = time.Second

// accept starts a goroutine for every connection.
func (s *Server) accept(l net.Listener) error {
	var pause time.Duration
	for {
		nc, err := l.Accept()
		switch {
		case err == nil:
			pause = 0
			s.take(nc)
		case !temporary(err):
			return err
		default: // no file descriptors, say
			pause = min(max(2*pause, 5*time.Millisecond), longestPause)
			s.logf("http: Accept error: %v; retrying in %v", err, pause)
			select {
			case <-time.After(pause):
			case <-s.shut:
			}
		}
	}
}

func temporary(err error) bool {
	t, ok := errors.AsType[interface {
		error
		Temporary() bool
	}](err)
	return ok && t.Temporary()
}

// take serves a new connection.
func (s *Server) take(nc net.Conn) {
	tcp, ok := nc.(*net.TCPConn)
	if !ok {
		go s.rest.give(nc)
		return
	}
	c, err := newConn(s, tcp)
	if err != nil || !s.add(c) {
		_ = nc.Close() // it is gone already, or the server is
		return
	}
	go c.serve()
}

func (s *Server) add(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	s.conns[c] = struct{}{}
	return true
}

// Connections returns how many connections this package serves, without those that it has handed over.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

func (s *Server) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	if s.closing && len(s.conns) == 0 {
		close(s.ended)
	}
}

// Shutdown stops accepting, closes what is idle, and waits until the requests at hand are answered or ctx is over.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.stop((*conn).retire)
	select {
	case <-s.ended:
	case <-ctx.Done():
		err = errors.Join(err, ctx.Err())
	}
	return errors.Join(err, s.std.Shutdown(ctx))
}

// Close closes every connection at once.
func (s *Server) Close() error {
	return errors.Join(s.stop((*conn).kill), s.std.Close())
}

// stop closes the listeners, and does end to every connection.
func (s *Server) stop(end func(*conn)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	for l := range s.listeners {
		err = errors.Join(err, l.Close())
		delete(s.listeners, l)
	}
	for c := range s.conns {
		end(c)
	}
	if !s.closing {
		s.closing = true
		close(s.shut)
		s.rest.end()
		if len(s.conns) == 0 {
			close(s.ended)
		}
	}
	return err
}

func (s *Server) logf(format string, args ...any) {
	if s.std.ErrorLog != nil {
		s.std.ErrorLog.Printf(format, args...)
	}
}

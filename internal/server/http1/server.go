package http1

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// Server serves plain requests itself and hands other connections to an http.Server. It is safe for concurrent use.
//
// Lifecycle:
//
//  1. New takes over an http.Server that does not serve yet.
//  2. Serve accepts connections; it may be called for several listeners.
//  3. Shutdown (waits for requests) or Close (does not) ends every Serve. Both may be called several times, Close also during
//     Shutdown. A later Serve returns http.ErrServerClosed.
//
// For example, http1.New(&http.Server{Handler: h}).Serve(l) serves like (&http.Server{Handler: h}).Serve(l).
type Server struct {
	std      *http.Server
	handoff  *handoff // to std
	watchers *watchers
	shut     chan struct{} // closed by Shutdown and Close
	ended    chan struct{} // closed with the last connection after shut

	mu        sync.Mutex
	closing   bool                      // guarded by mu
	conns     map[*conn]struct{}        // guarded by mu
	listeners map[net.Listener]struct{} // guarded by mu
}

// New returns a server that takes Handler, ReadHeaderTimeout, ReadTimeout, IdleTimeout and ErrorLog from std, and hands to std
// the connections that it does not serve itself. It owns std from now on.
func New(std *http.Server) *Server {
	return &Server{
		std: std, handoff: &handoff{conns: make(chan net.Conn), done: make(chan struct{})}, watchers: newWatchers(),
		shut: make(chan struct{}), ended: make(chan struct{}), conns: make(map[*conn]struct{}), listeners: make(map[net.Listener]struct{}),
	}
}

// Serve accepts connections on l until Shutdown or Close, closes l, and returns http.ErrServerClosed. On an error of l it
// returns that.
func (s *Server) Serve(l net.Listener) error {
	if !s.addListener(l) {
		return errors.Join(http.ErrServerClosed, l.Close())
	}
	s.handoff.listener.Store(&l)
	done := make(chan struct{})
	go func() {
		_ = s.std.Serve(s.handoff) // it ends when accept does, or with this server
		close(done)
	}()
	err := s.accept(l)
	_ = l.Close() // err is the one to return
	s.mu.Lock()
	delete(s.listeners, l)
	closing := s.closing
	s.mu.Unlock()
	if closing {
		err = http.ErrServerClosed
	} else {
		s.handoff.end()
	}
	<-done
	return err
}

func (s *Server) addListener(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	s.listeners[l] = struct{}{}
	return true
}

// longestPause bounds the wait after a temporary error of Accept.
const longestPause = time.Second

// accept starts a goroutine for every connection.
func (s *Server) accept(l net.Listener) error {
	var pause time.Duration
	for {
		nc, err := l.Accept()
		switch {
		case err == nil:
			pause = 0
			s.serveConn(nc)
		case !temporary(err):
			return err
		default: // for example, no file descriptors are left
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

// serveConn starts to serve a new connection.
func (s *Server) serveConn(nc net.Conn) {
	tcp, ok := nc.(*net.TCPConn)
	if !ok {
		go s.handoff.pass(nc)
		return
	}
	c, err := newConn(s, tcp)
	if err != nil || !s.add(c) {
		_ = nc.Close() // it is closed already, or the server is
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

// Connections returns the number of open connections without those handed over to net/http.
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

// Shutdown stops accepting, closes idle connections, and waits until every request has its response or ctx ends.
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

// stop closes the listeners and calls end for every connection.
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
		s.handoff.end()
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

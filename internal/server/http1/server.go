// Package http1 serves plain HTTP/1.1 requests over TCP with an http.Handler, at a fraction of the cost of net/http. It hands
// every connection that needs anything else to net/http.
//
// A request is plain when its head arrives in one read and has HTTP/1.1, the method GET or POST, a path without escapes and
// without a query, and a Content-Length or no body. The first request that is not plain (chunked, Expect, an upgrade, HTTP/2,
// HTTP/1.0, a malformed header, a head in several pieces) moves its connection, with the bytes read so far, to net/http, where
// it stays. So net/http alone interprets or rejects unusual bytes. For example, "Content-Length: +5" is never parsed here.
//
// The savings: the connection reuses its request, header map and body; a head equal to the previous one is not parsed again;
// no goroutine watches for a disconnect until a request has run for 20 ms; deadlines are set only when they change. Everything
// else is as in net/http: limits of header size and time, draining of unread bodies, chunked responses of unknown length,
// panics, graceful shutdown. Tests compare both servers on the same bytes.
//
// Files, in the order in which a request passes them:
//
//   - server.go: accept loop, shutdown, and the listener through which net/http receives connections
//   - conn.go: one connection, request after request, and its request bodies; watch.go: client disconnects
//   - head.go: request line and header; response.go: the http.ResponseWriter
//
// # Contract of handlers
//
// A handler is called as by net/http, one request at a time per connection, with these additional rules:
//
//  1. It must not modify the request's Header, neither the map nor its values: the next request with an equal head gets the
//     same map. For example, r.Header.Del("Authorization") would remove the field from every later request of the client.
//     A handler that needs another header must use r.Header.Clone().
//  2. It must not use the request, its header, its body or the ResponseWriter after it has returned.
//  3. It may call Fields until it returns.
package http1

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
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
	if !add(s, s.listeners, l) {
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
		_ = s.handoff.Close() // always nil
	}
	<-done
	return err
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
	if err != nil || !add(s, s.conns, c) {
		_ = nc.Close() // it is closed already, or the server is
		return
	}
	go c.serve()
}

// add adds a connection or listener to its set, and reports false if the server is closed.
func add[K comparable](s *Server, to map[K]struct{}, k K) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closing {
		to[k] = struct{}{}
	}
	return !s.closing
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
func (s *Server) Close() error { return errors.Join(s.stop((*conn).kill), s.std.Close()) }

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
		_ = s.handoff.Close() // always nil
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

// Close ends Accept. The owner of the original listener closes that.
func (h *handoff) Close() error {
	h.once.Do(func() { close(h.done) })
	return nil
}

// Addr returns the address of the original listener.
func (h *handoff) Addr() net.Addr { return (*h.listener.Load()).Addr() }

// replayConn is a connection whose first bytes have been read already. Read returns them first.
type replayConn struct {
	*net.TCPConn
	ahead []byte
}

// Read returns the bytes read ahead, then reads from the connection. It returns io.EOF after watchAfter: net/http ends the request of a
// client that has closed its sending half at once, and this package when the request runs longer than that.
func (c *replayConn) Read(p []byte) (int, error) {
	if len(c.ahead) == 0 {
		n, err := c.TCPConn.Read(p)
		if err == io.EOF { //nolint:errorlint // a connection returns it unwrapped
			<-time.After(watchAfter)
		}
		return n, err
	}
	n := copy(p, c.ahead)
	c.ahead = c.ahead[n:]
	return n, nil
}

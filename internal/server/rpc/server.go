// Package rpc serves gRPC services over HTTP/2 with an own transport. It calls the handlers and interceptors of grpc.ServiceDesc as
// grpc.Server does, and sends the same statuses.
//
// grpc.Server has a goroutine that reads a connection, one that writes it, and one for each call. A small call passes all three, and each
// hand-over wakes a thread of an idle processor. Here the goroutine that reads a connection also executes a call that has arrived as a whole
// and is the only open one, and writes its response with one system call. See conn.lend for what happens when that takes long.
//
//   - server.go: Settings, Server; conn.go: reading a connection, and who does it; watch.go: leads that are lent for long; frames.go: the frames
//   - heads.go: request headers; fields.go: response headers; write.go: sending and its flow control
//   - stream.go, inbox.go: one call; message.go: its messages; dispatch.go: calling handlers; keep.go: pings, idle connections and draining
package rpc

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/tap"
)

// Settings configure a Server. Zero values select what grpc.Server has by default, except where a field says otherwise.
type Settings struct {
	// Codec encodes and decodes messages, whatever the content type names. It is required.
	Codec encoding.CodecV2
	// MaxReceive and MaxSend bound messages in bytes. 0: 4 MiB and 2 GiB.
	MaxReceive, MaxSend int
	// MaxHeaders bounds the headers of a call, as HTTP/2 counts them. 0: 64 KiB.
	MaxHeaders uint32
	// MaxStreams bounds the calls of a connection that are open, and those whose handlers run. While that many run, which is possible if calls
	// were reset, the connection is not read. 0: 1000.
	MaxStreams int
	// Window is how many bytes of a call a client may send before they are read, ConnWindow is that of a connection. 0: 64 KiB.
	Window, ConnWindow int32
	// Keepalive configures pings to clients and the lifetime of connections, Pings the pings of clients.
	Keepalive keepalive.ServerParameters
	Pings     keepalive.EnforcementPolicy
	// Credentials make the handshake of a connection. Nil: none.
	Credentials credentials.TransportCredentials
	// Tap refuses calls before their handlers are called, on the goroutine that reads the connection. Nil: none.
	Tap tap.ServerInHandle
	// Unary and Stream intercept calls. Nil: none.
	Unary  grpc.UnaryServerInterceptor
	Stream grpc.StreamServerInterceptor
	// Short reports whether calls of a unary method mostly return soon, so that they may execute on the goroutine that reads the
	// connection. For example, "/grpc.health.v1.Health/Check". Nil: none do.
	Short func(method string) bool
	// Log gets the failures of handshakes, at the level of debugging. Nil: none.
	Log *slog.Logger
}

const (
	defaultWindow     = 65535
	defaultMaxReceive = 4 << 20
	defaultMaxHeaders = 64 << 10
	defaultMaxStreams = 1000
	// handshakeTime bounds the time until a connection has sent its first settings.
	handshakeTime = 2 * time.Minute
)

// complete replaces zero values.
func (s *Settings) complete() {
	orDefault(&s.MaxReceive, defaultMaxReceive)
	orDefault(&s.MaxSend, math.MaxInt32)
	orDefault(&s.MaxHeaders, defaultMaxHeaders)
	orDefault(&s.MaxStreams, defaultMaxStreams)
	s.Window, s.ConnWindow = max(s.Window, defaultWindow), max(s.ConnWindow, defaultWindow)
	completeKeepalive(&s.Keepalive, &s.Pings)
}

func orDefault[T int | uint32 | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// Server serves registered services. It is safe for concurrent use, but services must be registered before Serve.
//
// Lifecycle:
//
//  1. New, then RegisterService for each service.
//  2. Serve accepts connections; it may be called for several listeners.
//  3. GracefulStop (waits for calls) or Stop (does not) ends every Serve. Stop may be called during GracefulStop, which it then ends.
type Server struct {
	set      Settings
	services map[string]*service
	methods  map[string]*method
	workers  workers
	watch    watch

	handshakes sync.WaitGroup // and the loops of Serve
	handlers   sync.WaitGroup

	mu        sync.Mutex
	none      *sync.Cond            // no connection is left; uses mu
	stopping  bool                  // guarded by mu
	draining  bool                  // guarded by mu
	stopped   bool                  // guarded by mu
	listeners map[net.Listener]bool // guarded by mu
	greeting  map[net.Conn]bool     // connections in their handshake; guarded by mu
	conns     map[*conn]bool        // guarded by mu
}

var _ grpc.ServiceRegistrar = (*Server)(nil)

// service is a registered service.
type service struct {
	impl    any
	info    grpc.ServiceInfo
	methods map[string]*method
}

// method is a method of a service.
type method struct {
	name   string // "/service/method"
	impl   any
	unary  *grpc.MethodDesc // nil for a streaming method
	stream *grpc.StreamDesc // nil for a unary method
	info   grpc.StreamServerInfo
	short  bool // may execute on the goroutine that reads the connection
}

// New returns a server without services.
func New(set Settings) *Server {
	set.complete()
	s := &Server{
		set: set, services: map[string]*service{}, methods: map[string]*method{},
		listeners: map[net.Listener]bool{}, greeting: map[net.Conn]bool{}, conns: map[*conn]bool{},
	}
	s.none = sync.NewCond(&s.mu)
	s.watch.init()
	return s
}

// RegisterService registers a service and its implementation. It panics if the name is registered already.
func (s *Server) RegisterService(desc *grpc.ServiceDesc, impl any) {
	if s.services[desc.ServiceName] != nil {
		panic(fmt.Sprintf("rpc: the service %q is registered twice", desc.ServiceName))
	}
	v := &service{impl: impl, methods: map[string]*method{}, info: grpc.ServiceInfo{Metadata: desc.Metadata}}
	s.services[desc.ServiceName] = v
	add := func(name string, m *method) {
		m.name, m.impl = "/"+desc.ServiceName+"/"+name, impl
		m.short = m.unary != nil && s.set.Short != nil && s.set.Short(m.name)
		v.methods[name], s.methods[m.name] = m, m
		info := grpc.MethodInfo{Name: name}
		if m.stream != nil {
			info.IsClientStream, info.IsServerStream = m.stream.ClientStreams, m.stream.ServerStreams
			m.info = grpc.StreamServerInfo{FullMethod: m.name, IsClientStream: info.IsClientStream, IsServerStream: info.IsServerStream}
		}
		v.info.Methods = append(v.info.Methods, info)
	}
	for i := range desc.Methods {
		add(desc.Methods[i].MethodName, &method{unary: &desc.Methods[i]})
	}
	for i := range desc.Streams {
		add(desc.Streams[i].StreamName, &method{stream: &desc.Streams[i]})
	}
}

// GetServiceInfo returns the registered services, for the reflection service.
func (s *Server) GetServiceInfo() map[string]grpc.ServiceInfo {
	all := make(map[string]grpc.ServiceInfo, len(s.services))
	for name, v := range s.services {
		all[name] = v.info
	}
	return all
}

// longestPause bounds the wait after a temporary error of Accept.
const longestPause = time.Second

// Serve accepts connections on l until Stop or GracefulStop, closes l, and returns nil, or ErrServerStopped if the server was stopped
// before. On an error of l it returns that.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	if s.stopping {
		s.mu.Unlock()
		return errors.Join(grpc.ErrServerStopped, l.Close())
	}
	s.listeners[l] = true
	s.handshakes.Add(1)
	s.mu.Unlock()
	defer s.handshakes.Done()
	var pause time.Duration
	for {
		raw, err := l.Accept()
		if err == nil {
			pause = 0
			s.handshakes.Go(func() { s.greet(raw) })
			continue
		}
		s.mu.Lock()
		stopping := s.stopping
		s.mu.Unlock()
		if t, ok := errors.AsType[interface {
			error
			Temporary() bool
		}](err); !stopping && ok && t.Temporary() { // for example, no file descriptors are left
			pause = min(max(2*pause, 5*time.Millisecond), longestPause)
			<-time.After(pause)
			continue
		}
		s.mu.Lock()
		delete(s.listeners, l)
		s.mu.Unlock()
		_ = l.Close() // err is the one to return
		if stopping {
			return nil
		}
		return err
	}
}

// greet makes the handshakes of a connection and starts to serve it.
func (s *Server) greet(raw net.Conn) {
	s.mu.Lock()
	if s.stopping {
		s.mu.Unlock()
		_ = raw.Close() // it has sent nothing yet
		return
	}
	s.greeting[raw] = true
	s.mu.Unlock()
	c, err := newConn(s, raw)
	if err == nil {
		err = c.greet(raw)
	}
	s.mu.Lock()
	delete(s.greeting, raw)
	if err == nil && s.stopped {
		err = grpc.ErrServerStopped
	}
	if err == nil {
		s.conns[c] = true
	}
	draining := s.draining
	s.mu.Unlock()
	if err != nil {
		_ = raw.Close() // the connection is of no use
		if c != nil {
			c.close()
		}
		if s.set.Log != nil && !errors.Is(err, io.EOF) {
			s.set.Log.Debug("handshake failed", slog.String("error", err.Error()), slog.String("peer", raw.RemoteAddr().String()))
		}
		return
	}
	if draining {
		c.drain("")
	}
	go c.lead()
}

// remove forgets a closed connection.
func (s *Server) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	if len(s.conns) == 0 {
		s.none.Broadcast()
	}
}

// GracefulStop stops accepting, sends GOAWAY, and waits until every call has its status, the connections are closed, and the handlers have
// returned.
func (s *Server) GracefulStop() {
	s.stop(false)
	s.handlers.Wait()
}

// Stop closes every connection at once. Handlers may still run; their contexts are cancelled.
func (s *Server) Stop() { s.stop(true) }

func (s *Server) stop(now bool) {
	s.mu.Lock()
	s.stopping, s.stopped = true, s.stopped || now
	for l := range s.listeners {
		_ = l.Close() // Serve returns
		delete(s.listeners, l)
	}
	for raw := range s.greeting {
		if now {
			_ = raw.Close() // the handshake fails
		}
	}
	s.mu.Unlock()
	s.handshakes.Wait()
	s.mu.Lock()
	s.draining = true
	all := slices.Collect(maps.Keys(s.conns))
	s.mu.Unlock()
	for _, c := range all {
		if now {
			c.close()
		} else {
			c.drain("graceful_stop")
		}
	}
	s.mu.Lock()
	for len(s.conns) > 0 {
		s.none.Wait()
	}
	s.mu.Unlock()
	s.workers.stop()
}

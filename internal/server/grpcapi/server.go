// Package grpcapi serves the KServe v2 protocol and Triton's extensions over gRPC.
//
// A method decodes a message, calls an interface of core/infer or a service, and encodes
// the result. It knows no models. A request stays in the transport's buffers until each
// tensor is copied, once, into its own memory. Large tensors of a response are passed to the
// transport without a copy.
//
//   - server.go: Settings, New, Serve, Shutdown; options.go: grpc's options, the codec, restricted methods; access.go: who may call what
//   - describe.go: queries about the server and its models; control.go: administration
//   - infer.go: ModelInfer, and the deadlines and panics of calls; stream.go, streamcall.go, streamroom.go: ModelStreamInfer
//   - receive.go: reading messages in pieces, which are charged; latemessage.go: ending calls whose messages do not come
//   - connection.go: responses that are not read; message.go: reading protobuf, by package wire
//   - request.go, params.go: from message to request; response.go: from response to message
package grpcapi

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/orca"
	"google.golang.org/grpc/reflection"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/identity"
	"github.com/tutti-server/tutti/internal/logs"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/internal/server/loads"
	"github.com/tutti-server/tutti/internal/server/rpc"
	"github.com/tutti-server/tutti/internal/server/sock"
	"github.com/tutti-server/tutti/internal/shm"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/proto/inference"
)

// Settings configure a Server. The zero values of the fields after Alloc are Triton's defaults.
type Settings struct {
	Infer   infer.Inferer
	Catalog infer.Catalog
	// Alloc provides the memory of input tensors.
	Alloc tensor.Allocator
	// Name, Version and Extensions are the server's metadata.
	Name, Version string
	Extensions    []string
	// Live reports whether the server is live. Nil: always.
	Live func() bool

	// Lifecycle loads and unloads models. Nil: not supported.
	Lifecycle infer.Lifecycle
	// Regions are the registered shared memory. Nil: disabled.
	Regions *shm.Registry
	// Tracer has the trace settings. Nil: not supported.
	Tracer *tracing.Tracer
	// Log has the log settings. Nil: not supported.
	Log *logs.Log

	// MaxMessage bounds a decompressed request in bytes. 0: no limit. Memory is allocated as bytes arrive, not as
	// the message claims.
	MaxMessage int
	// InFlight counts the bytes of requests and rejects requests over its limit. Nil: neither.
	InFlight *infer.InFlight
	// StallTimeout is how long a client may send nothing of a call's first message or of the rest of a large one, before the
	// call ends, and read nothing, before its connection is closed. 0: one minute.
	StallTimeout time.Duration
	// Keepalive configures pings to clients and the lifetime of connections, Pings the pings of clients. The third early
	// ping in a row closes the connection.
	Keepalive keepalive.ServerParameters
	Pings     keepalive.EnforcementPolicy
	// Compression is the level for responses to clients that accept it.
	Compression Compression
	// TLS encrypts every connection; see certs.Load. Nil: none.
	TLS *tls.Config
	// Load counts calls and reports the load. Nil: that of the gRPC server alone.
	Load *loads.Meter
	// Shares tells clients apart. Nil: it does not.
	Shares *infer.Shares
	// ForwardHeaders selects the metadata that become request parameters. Keys are lower case. Nil: none.
	ForwardHeaders *regexp.Regexp
	// Restricted lists categories of methods that need metadata with a key after triton-grpc-protocol-. Each
	// category occurs at most once.
	Restricted []infer.Restriction
	// Guard decides who may use what, and writes the audit log. Nil: everybody may use everything.
	Guard *identity.Guard
	// NoFastPath serves with grpc.Server, in place of package rpc, and reads and writes through package net, without the direct system
	// calls of package sock.
	NoFastPath bool
}

// Server serves the v2 protocol over gRPC. Create it with New, call Serve once per listener, and Shutdown once.
type Server struct {
	transport transport
	svc       *service
	accepted  handshakes
}

// transport serves connections: an rpc.Server, or a grpc.Server.
type transport interface {
	reflection.GRPCServer
	Serve(l net.Listener) error
	GracefulStop()
	Stop()
}

// service implements the methods. It is separate from Server, so that Server exports no others. serviceDesc adds
// ModelInfer and ModelStreamInfer.
type service struct {
	inference.UnimplementedGRPCInferenceServiceServer
	set     Settings
	codec   codec
	limited infer.Restrictions
	names   pool.Names
	open    atomic.Int64 // streams
	// exit is closed at shutdown, cut when the streams that are still open then must end.
	exit, cut         chan struct{}
	exitOnce, cutOnce sync.Once
	watchers          watchers
	reflections       atomic.Int32 // streams that are open
	watches           atomic.Int32 // calls of Watch that are open
	waiting           atomic.Int32 // streams that wait for room while there is none in flight for what they hold
	// last is set when requests that arrive during a shutdown are served.
	last atomic.Bool
	// streams counts what outlives its method: the receiver and requests of a stream, and methods that continue
	// after their deadline.
	streams sync.WaitGroup
	// panicked is set after a method panicked. Its requests may never end, so Shutdown no longer waits for streams.
	panicked atomic.Bool
}

var _ inference.GRPCInferenceServiceServer = (*service)(nil)

func newService(set Settings) *service {
	if set.Regions == nil {
		set.Regions = shm.NewRegistry(false)
	}
	if set.Load == nil {
		set.Load = new(loads.Meter)
	}
	return &service{set: set, codec: newCodec(set.InFlight), limited: infer.Restrict(set.Restricted), exit: make(chan struct{}), cut: make(chan struct{})}
}

// New returns a server that does not listen yet.
func New(set Settings) *Server {
	svc := newService(set)
	s := &Server{svc: svc}
	if set.NoFastPath {
		intercept := []grpc.ServerOption{grpc.UnaryInterceptor(svc.interceptUnary), grpc.StreamInterceptor(svc.interceptStream)}
		s.transport = grpc.NewServer(append(options(&set), intercept...)...)
	} else {
		s.transport = rpc.New(svc.transportSettings())
	}
	s.transport.RegisterService(svc.receiving(serviceDesc()), svc)
	s.transport.RegisterService(svc.receiving(&grpc_health_v1.Health_ServiceDesc), &health{svc: svc})
	reflection.Register(s.transport)
	if err := orca.Register(s.transport, orca.ServiceOptions{ServerMetricsProvider: svc.set.Load}); err != nil {
		panic(err) // unreachable: there is a provider
	}
	return s
}

// Serve accepts connections on l until Shutdown, and then returns nil.
func (s *Server) Serve(l net.Listener) error {
	if !s.svc.set.NoFastPath {
		l = sock.Listener{Listener: l}
	}
	if err := s.transport.Serve(&acceptor{Listener: l, all: &s.accepted}); !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}

// ReadinessChanged notifies watchers of the server's health. Without it they notice a change after at most a
// second.
func (s *Server) ReadinessChanged() { s.svc.watchers.wake() }

// cutTime bounds the time in which streams that are cut off get their status.
const cutTime = time.Second

// Shutdown stops accepting connections, sends GOAWAY and waits for the requests in flight. Streams end with UNAVAILABLE when they
// have no requests. When ctx is done first, the others end so, too, and calls are cancelled.
func (s *Server) Shutdown(ctx context.Context) error {
	s.svc.exitOnce.Do(func() { close(s.svc.exit) })
	graceful, done := make(chan struct{}), make(chan struct{})
	go func() {
		if s.svc.last.Load() {
			s.accepted.wait(ctx)
		}
		s.transport.GracefulStop()
		close(graceful)
		if !s.svc.panicked.Load() {
			s.svc.streams.Wait()
		}
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	s.svc.cutOnce.Do(func() { close(s.svc.cut) })
	if s.svc.open.Load() > 0 {
		select {
		case <-graceful:
		case <-time.After(cutTime): // calls that are not streams
		}
	}
	s.transport.Stop()
	select {
	case <-done:
	case <-time.After(time.Second): // an execution may take longer
	}
	return ctx.Err()
}

// ServeLast has Shutdown serve the requests that arrive before their clients have got GOAWAY, in place of refusing them. The
// listeners must not accept any more.
func (s *Server) ServeLast() { s.svc.last.Store(true) }

// refuses reports whether new calls are refused because of a shutdown.
func (s *service) refuses() bool { return s.shuttingDown() && !s.last.Load() }

func (s *service) shuttingDown() bool {
	select {
	case <-s.exit:
		return true
	default:
		return false
	}
}

// maxText bounds an error text in bytes. It travels in a header, which clients limit.
const maxText = 4 << 10

// wireError converts an error into what clients get: a code, a text and details.
func wireError(err error) error {
	if _, ok := err.(interface{ GRPCStatus() *grpcstatus.Status }); ok {
		return err
	}
	if deadlinePassed(err) {
		return detailed(codes.DeadlineExceeded, "Deadline Exceeded", status.With(status.DeadlineExpired, err))
	}
	code, text := wireStatus(err)
	return detailed(code, text, err)
}

// errorDomain is the domain of the reasons in google.rpc.ErrorInfo.
const errorDomain = "tutti"

// maxDetailed is the length of a text up to which a status has details: they repeat it in base64, and clients limit the header of both.
const maxDetailed = 2 << 10

// detailed returns the status of an error, with google.rpc.ErrorInfo and, if it has a time to retry, google.rpc.RetryInfo. For example, for
// a full queue:
//
//	ErrorInfo{Reason: "QUEUE_FULL", Domain: "tutti", Metadata: {"retryable": "true", "step": "detect"}}
//	RetryInfo{RetryDelay: 120 ms}
func detailed(code codes.Code, text string, err error) error {
	st, d := grpcstatus.New(code, text), status.DetailsOf(err)
	if len(text) > maxDetailed {
		return st.Err()
	}
	info := &errdetails.ErrorInfo{Reason: string(d.Reason), Domain: errorDomain, Metadata: map[string]string{"retryable": strconv.FormatBool(d.Retryable)}}
	if d.Step != "" {
		info.Metadata["step"] = strings.ToValidUTF8(d.Step, "\ufffd")
	}
	if d.Finish > 0 {
		info.Metadata["predicted_finish_ms"] = strconv.FormatInt(status.Milliseconds(d.Finish), 10)
	}
	list := []protoadapt.MessageV1{info}
	if d.RetryAfter > 0 {
		list = append(list, &errdetails.RetryInfo{RetryDelay: durationpb.New(d.RetryAfter)})
	}
	if with, failed := st.WithDetails(list...); failed == nil {
		st = with
	}
	return st.Err()
}

func wireStatus(err error) (codes.Code, string) {
	text := strings.ToValidUTF8(status.Text(err), "\ufffd") // it may quote a client's bytes
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "..."
	}
	if errors.Is(err, infer.ErrTooLarge) {
		return codes.ResourceExhausted, text
	}
	return status.CodeOf(err).GRPC(), text
}

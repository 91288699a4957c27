package grpcapi

import (
	"context"
	"crypto/tls"
	"errors"
	"hash/maphash"
	"net"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/logs"
	"github.com/tutti-server/tutti/internal/server/sock"
	"github.com/tutti-server/tutti/internal/shm"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/proto/inference"
)

// Settings is what a Server is made from. The zero value of everything after Alloc
// is Triton's default.
type Settings struct {
	Infer   infer.Inferer
	Catalog infer.Catalog
	// Alloc provides the memory of input tensors.
	Alloc tensor.Allocator
	// Name, Version and Extensions are what the server says about itself.
	Name, Version string
	Extensions    []string
	// Live tells whether the server is live; nil for always.
	Live func() bool

	// Lifecycle loads and unloads models; nil when that is not supported.
	Lifecycle infer.Lifecycle
	// Regions are the clients' shared memory; nil when that is disabled.
	Regions *shm.Registry
	// Tracer has the trace settings; nil when they are not supported.
	Tracer *tracing.Tracer
	// Log has the log settings; nil when they are not supported.
	Log *logs.Log

	// MaxMessage bounds a request's size in bytes, decompressed; 0 for the largest
	// there is. Memory is taken as a message arrives, whatever size it claims.
	MaxMessage int
	// InFlight counts the bytes of requests, and refuses those beyond its limit; nil for neither.
	InFlight *infer.InFlight
	// StallTimeout is how long a client may send nothing of a message of which InFlight
	// holds more than 1 MiB, before its connection ends; 0 for a minute.
	StallTimeout time.Duration
	Keepalive    Keepalive
	// Compression is how hard answers are compressed for clients that can read it.
	Compression Compression
	// TLS, as from certs.Load, encrypts every connection; nil for none.
	TLS *tls.Config
	// ForwardHeaders chooses the metadata that become parameters of a request; nil
	// for none. Keys are lower case.
	ForwardHeaders *regexp.Regexp
	// Restricted asks for metadata, the key after triton-grpc-protocol-, before some of
	// the methods are answered. Each category is in it at most once.
	Restricted []infer.Restriction
	// NoFastPath reads and writes connections as package net does, without the direct system calls of package sock.
	NoFastPath bool
}

// Server answers the v2 protocol over gRPC.
type Server struct {
	grpc *grpc.Server
	svc  *service
}

// service implements the methods; it is apart from Server so that Server has no
// others. ModelInfer and ModelStreamInfer are not among them: see serviceDesc.
type service struct {
	inference.UnimplementedGRPCInferenceServiceServer
	set   Settings
	names names
	// exit is closed when the server shuts down.
	exit     chan struct{}
	exitOnce sync.Once
	watchers watchers
	// streams counts what outlives its method: a stream's receiver and its requests, and
	// what is late for the deadline of a call.
	streams sync.WaitGroup
	// panicked is set once a method panicked: a request of it may never end, so that nothing waits for streams any more.
	panicked atomic.Bool
}

var _ inference.GRPCInferenceServiceServer = (*service)(nil)

func newService(set Settings) *service {
	if set.Regions == nil {
		set.Regions = shm.NewRegistry(false)
	}
	s := &service{set: set, exit: make(chan struct{})}
	s.names.seed = maphash.MakeSeed()
	return s
}

// New returns a server that does not listen yet.
func New(set Settings) *Server {
	svc := newService(set)
	s := &Server{grpc: grpc.NewServer(append(options(&set), svc.recovering()...)...), svc: svc}
	s.grpc.RegisterService(serviceDesc(), svc)
	grpc_health_v1.RegisterHealthServer(s.grpc, &health{svc: svc})
	reflection.Register(s.grpc)
	return s
}

// Serve accepts connections on l until Shutdown, and then returns nil.
func (s *Server) Serve(l net.Listener) error {
	if !s.svc.set.NoFastPath {
		l = sock.Listener{Listener: l}
	}
	if err := s.grpc.Serve(l); !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}

// ReadinessChanged tells those who watch the server's health that it may have
// changed. Without it they learn so a little later.
func (s *Server) ReadinessChanged() { s.svc.watchers.wake() }

// Shutdown stops accepting and waits for the requests at hand; when ctx is over
// first, it cancels them.
func (s *Server) Shutdown(ctx context.Context) error {
	s.svc.exitOnce.Do(func() { close(s.svc.exit) })
	done := make(chan struct{})
	go func() {
		s.grpc.GracefulStop()
		if !s.svc.panicked.Load() {
			s.svc.streams.Wait()
		}
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		s.grpc.Stop()
	}
	select {
	case <-done:
	case <-time.After(cutOff):
	}
	return ctx.Err()
}

// cutOff is how long cancelled requests have to end. One that is executing may take
// longer, and nobody waits for it.
const cutOff = time.Second

func (s *service) leaving() bool {
	select {
	case <-s.exit:
		return true
	default:
		return false
	}
}

// maxText bounds the text of an error, which travels in a header that clients limit.
const maxText = 4 << 10

// wireError gives an error the code and the text that clients read.
func wireError(err error) error {
	if _, ok := err.(interface{ GRPCStatus() *grpcstatus.Status }); ok {
		return err
	}
	if overdue(err) {
		return errDeadline
	}
	code, text := wireStatus(err)
	return grpcstatus.Error(code, text)
}

func wireStatus(err error) (codes.Code, string) {
	text := strings.ToValidUTF8(status.Text(err), "\ufffd") // it may repeat what a client sent
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "..."
	}
	if errors.Is(err, infer.ErrTooLarge) {
		return codes.ResourceExhausted, text
	}
	return status.CodeOf(err).GRPC(), text
}

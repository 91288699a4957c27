package grpcapi

import (
	"context"
	"errors"
	"hash/maphash"
	"net"
	"regexp"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	grpcstatus "google.golang.org/grpc/status"

	"tutti/core/infer"
	"tutti/core/logs"
	"tutti/core/shm"
	"tutti/core/status"
	"tutti/core/tensor"
	"tutti/core/tracing"
	"tutti/proto/inference"
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
	Keepalive  Keepalive
	// Compression is how hard answers are compressed for clients that can read it.
	Compression Compression
	// Credentials are those of TLS, from TLS.Credentials; nil for cleartext.
	Credentials credentials.TransportCredentials
	// ForwardHeaders chooses the metadata that become parameters of a request; nil
	// for none. Keys are lower case.
	ForwardHeaders *regexp.Regexp
	// Restricted asks for a header before some of the methods are answered.
	Restricted []Restriction
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
	// streams counts what outlives a stream's method: its receiver and its requests.
	streams sync.WaitGroup
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
	s := &Server{grpc: grpc.NewServer(options(&set)...), svc: svc}
	s.grpc.RegisterService(serviceDesc(), svc)
	grpc_health_v1.RegisterHealthServer(s.grpc, &health{svc: svc})
	reflection.Register(s.grpc)
	return s
}

// Serve accepts connections on l until Shutdown, and then returns nil.
func (s *Server) Serve(l net.Listener) error {
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
		s.svc.streams.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		s.grpc.Stop()
		<-done
		return ctx.Err()
	}
}

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
	code, text := wireStatus(err)
	return grpcstatus.Error(code, text)
}

func wireStatus(err error) (codes.Code, string) {
	var coded *status.Error
	code, text := status.CodeOf(err), err.Error()
	if !errors.As(err, &coded) && code == status.Cancelled {
		text = "" // a cancelled request has no text
	}
	if len(text) > maxText {
		text = text[:maxText] + "..."
	}
	// A cut may be within a character, and what a message holds must be UTF-8.
	return code.GRPC(), strings.ToValidUTF8(text, "")
}

package grpcapi

import (
	"context"
	"errors"
	"math"
	"net"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	grpcstatus "google.golang.org/grpc/status"

	"tutti/core/infer"
	"tutti/core/status"
	"tutti/core/tensor"
	"tutti/proto/inference"
)

// Settings is what a Server is made from.
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
}

// Server answers the v2 protocol over gRPC.
type Server struct {
	grpc *grpc.Server
	svc  *service
}

// service implements the methods; it is apart from Server so that Server has no others.
type service struct {
	inference.UnimplementedGRPCInferenceServiceServer
	set     Settings
	exiting atomic.Bool
}

var _ inference.GRPCInferenceServiceServer = (*service)(nil)

// New returns a server that does not listen yet.
func New(set Settings) *Server {
	s := &Server{
		// The protocol's tensors are as large as a message may be.
		grpc: grpc.NewServer(grpc.MaxRecvMsgSize(math.MaxInt32), grpc.MaxSendMsgSize(math.MaxInt32)),
		svc:  &service{set: set},
	}
	inference.RegisterGRPCInferenceServiceServer(s.grpc, s.svc)
	grpc_health_v1.RegisterHealthServer(s.grpc, &health{svc: s.svc})
	return s
}

// Serve accepts connections on l until Shutdown, and then returns nil.
func (s *Server) Serve(l net.Listener) error {
	if err := s.grpc.Serve(l); !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}

// Shutdown stops accepting and waits for the requests at hand; when ctx is over
// first, it cancels them.
func (s *Server) Shutdown(ctx context.Context) error {
	s.svc.exiting.Store(true)
	done := make(chan struct{})
	go func() {
		s.grpc.GracefulStop()
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

// wireError gives an error the code and the text that clients read.
func wireError(err error) error {
	var coded *status.Error
	code := status.CodeOf(err)
	if !errors.As(err, &coded) && code == status.Cancelled {
		return grpcstatus.Error(codes.Canceled, "") // a cancelled request has no text
	}
	return grpcstatus.Error(code.GRPC(), err.Error())
}

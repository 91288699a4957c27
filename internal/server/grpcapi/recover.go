package grpcapi

import (
	"context"
	"log/slog"

	"google.golang.org/grpc"

	"github.com/tutti-server/tutti/internal/recovery"
)

// recovering are the options by which a method that panics costs its call, not the process, and by which one ends in time.
// ModelInfer, which runs without interceptors, defers recovered itself.
func (s *service) recovering() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.ChainUnaryInterceptor(s.recoverUnary, s.timely), grpc.StreamInterceptor(s.recoverStream)}
}

func (s *service) recoverUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	defer s.recovered(info.FullMethod, &err)
	return handler(ctx, req)
}

func (s *service) recoverStream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	defer s.recovered(info.FullMethod, &err)
	return handler(srv, ss)
}

// recovered, when deferred, turns a panic into the error of the call.
func (s *service) recovered(method string, err *error) {
	if p := recover(); p != nil {
		s.panicked.Store(true)
		*err = wireError(recovery.Report(p, s.logger(), method, slog.String("method", method)))
	}
}

// logger returns where panics are logged, nil without a log.
func (s *service) logger() *slog.Logger {
	if s.set.Log == nil {
		return nil
	}
	return s.set.Log.Logger()
}

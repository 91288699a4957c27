package grpcapi

import (
	"context"
	"log/slog"

	"google.golang.org/grpc"

	"github.com/tutti-server/tutti/internal/recovery"
)

// recoveryOptions are the interceptors that turn a panic into the call's error and end calls before their deadline.
// ModelInfer runs without interceptors and defers recovered.
func (s *service) recoveryOptions() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.ChainUnaryInterceptor(s.recoverUnary, s.endInTime), grpc.StreamInterceptor(s.recoverStream)}
}

func (s *service) recoverUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	defer s.recovered(info.FullMethod, &err)
	return handler(ctx, req)
}

func (s *service) recoverStream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	defer s.recovered(info.FullMethod, &err)
	return handler(srv, ss)
}

// recovered must be deferred: it turns a panic into the error of the call.
func (s *service) recovered(method string, err *error) {
	if p := recover(); p != nil {
		s.panicked.Store(true)
		*err = wireError(recovery.Report(p, s.logger(), method, slog.String("method", method)))
	}
}

// logger returns the logger for panics, or nil.
func (s *service) logger() *slog.Logger {
	if s.set.Log == nil {
		return nil
	}
	return s.set.Log.Logger()
}

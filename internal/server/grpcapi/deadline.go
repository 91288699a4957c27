package grpcapi

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/recovery"
)

// headStart is how long before its deadline a call ends at most. At the deadline the transport resets the stream,
// and clients report that as a cancelled call or a removed stream. The status must reach them before.
const headStart = 10 * time.Millisecond

var errDeadline = grpcstatus.Error(codes.DeadlineExceeded, "Deadline Exceeded")

// beforeDeadline returns a context that ends shortly before the call's deadline.
func beforeDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	d, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, d.Add(-min(headStart, time.Until(d)/20)))
}

// outcome is the result of a method.
type outcome[T any] struct {
	value T
	err   error
}

// await runs f, a method, and returns its result, or DEADLINE_EXCEEDED at the deadline. An execution cannot be
// interrupted: f then continues without its client, and its result goes to drop.
func await[T any](ctx context.Context, s *service, method string, f func(context.Context) (T, error), drop func(T)) (T, error) {
	if _, ok := ctx.Deadline(); !ok {
		return f(ctx)
	}
	ctx, cancel := beforeDeadline(ctx)
	defer cancel()
	done := make(chan outcome[T])
	s.streams.Go(func() {
		var o outcome[T]
		func() {
			defer s.recovered(method, &o.err)
			o.value, o.err = f(ctx)
		}()
		select {
		case done <- o:
		case <-ctx.Done():
			if o.err == nil {
				drop(o.value)
			}
		}
	})
	select {
	case o := <-done:
		if o.err == nil || ctx.Err() == nil {
			return o.value, o.err
		}
	case <-ctx.Done():
	}
	var none T
	return none, ctx.Err()
}

// deadlinePassed reports whether err is the client's deadline.
func deadlinePassed(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, status.ErrDeadline)
}

// The interceptors turn a panic into the call's error. That of unary calls also ends them before their deadline, and converts
// their errors. ModelInfer runs without interceptors.

func (s *service) interceptUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	defer s.recovered(info.FullMethod, &err)
	resp, err = await(ctx, s, info.FullMethod, func(ctx context.Context) (any, error) { return handler(ctx, req) }, func(any) {})
	if err != nil {
		return nil, wireError(err)
	}
	return resp, nil
}

func (s *service) interceptStream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	defer s.recovered(info.FullMethod, &err)
	return handler(srv, ss)
}

// recovered must be deferred: it turns a panic into the error of the call.
func (s *service) recovered(method string, err *error) {
	if p := recover(); p != nil {
		s.panicked.Store(true)
		var log *slog.Logger
		if s.set.Log != nil {
			log = s.set.Log.Logger()
		}
		*err = wireError(recovery.Report(p, log, method, slog.String("method", method)))
	}
}

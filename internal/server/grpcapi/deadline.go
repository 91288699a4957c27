package grpcapi

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/tutti-server/tutti/core/status"
)

// headStart is how long before its deadline a call ends, at most. At the deadline
// itself the transport resets the stream, which clients report as a removed stream or
// a cancelled call, depending on what they see first. The status has to be there
// before.
const headStart = 10 * time.Millisecond

var errDeadline = grpcstatus.Error(codes.DeadlineExceeded, "Deadline Exceeded")

// inTime returns a call's context, which is over a little before its deadline if it
// has one.
func inTime(ctx context.Context) (context.Context, context.CancelFunc) {
	d, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, d.Add(-min(headStart, time.Until(d)/20)))
}

// outcome is what a method returns.
type outcome[T any] struct {
	value T
	err   error
}

// await returns what f, the implementation of a method, returns, or that the call's
// deadline is over: what cannot be interrupted, as an execution, goes on without the
// client. What f returns then is given to drop.
func await[T any](ctx context.Context, s *service, method string, f func(context.Context) (T, error), drop func(T)) (T, error) {
	if _, ok := ctx.Deadline(); !ok {
		return f(ctx)
	}
	ctx, cancel := inTime(ctx)
	defer cancel()
	done := make(chan outcome[T])
	s.streams.Go(func() {
		v, err := attempt(ctx, s, method, f)
		select {
		case done <- outcome[T]{v, err}:
		case <-ctx.Done():
			if err == nil {
				drop(v)
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

// attempt returns what f does, and the error of a panic.
func attempt[T any](ctx context.Context, s *service, method string, f func(context.Context) (T, error)) (v T, err error) {
	defer s.recovered(method, &err)
	return f(ctx)
}

// timely is the interceptor that has the methods without tensors end in time.
func (s *service) timely(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	v, err := await(ctx, s, info.FullMethod, func(ctx context.Context) (any, error) { return handler(ctx, req) }, func(any) {})
	if err != nil {
		return nil, wireError(err)
	}
	return v, nil
}

// overdue reports whether err says that the client's deadline is over.
func overdue(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, status.ErrDeadline)
}

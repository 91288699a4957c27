package grpcapi

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
)

// A call whose first message does not come holds a goroutine and its headers. grpc has no limit of time for that, so each connection has
// a list of such calls, and looks at it a few times in the stall time while there are any.

const (
	// firstLooks is how often in the stall time a connection looks for calls without a message.
	firstLooks = 4
	// slowestRate is the rate in bytes per second at which a large message must come, as over HTTP.
	slowestRate = 4 << 10
)

// firstMessage is a call that waits for its first message. awaitFirst and firstCame bracket the wait. It is guarded by its connection's mu.
type firstMessage struct {
	ctx   context.Context //nolint:containedctx // of the call, while it waits
	since uint32          // the look of the connection at which the wait began
	at    int             // index in the connection's list plus one; 0 when it is in none
}

// awaitFirst begins the wait of a call. It includes addWaiting(1).
//
// hot: no allocation in steady state, and no clock.
func (l *connection) awaitFirst(ctx context.Context, f *firstMessage) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wait(1)
	l.first = append(l.first, f)
	f.ctx, f.since, f.at = ctx, l.looks, len(l.first)
	if l.firstOn || l.receiving < 0 { // closed
		return
	}
	l.firstOn = true
	if l.firstLook == nil {
		l.firstLook = time.AfterFunc(l.stall/firstLooks, l.lookForFirst)
	} else {
		l.firstLook.Reset(l.stall / firstLooks)
	}
}

// firstCame ends the wait. It includes addWaiting(-1).
func (l *connection) firstCame(f *firstMessage) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgetFirst(f)
	l.wait(-1)
}

// forgetFirst removes a call from the list. mu must be held.
func (l *connection) forgetFirst(f *firstMessage) {
	if f.at == 0 {
		return
	}
	n := len(l.first) - 1
	l.first[f.at-1] = l.first[n]
	l.first[f.at-1].at = f.at
	l.first[n] = nil
	l.first = l.first[:n]
	f.ctx, f.at = nil, 0
}

// lookForFirst ends the calls that have waited for the stall time. Bytes of an incomplete message give them the time that they take at
// the slowest rate.
func (l *connection) lookForFirst() {
	l.mu.Lock()
	l.looks++
	least := uint32(firstLooks + min(l.pending/slowestRate*firstLooks/max(1, int64(l.stall/time.Second)), 1<<20)) //nolint:gosec // bounded
	var late []context.Context
	for _, f := range slices.Clone(l.first) {
		if l.looks-f.since > least {
			late = append(late, f.ctx)
			l.forgetFirst(f)
		}
	}
	if l.firstOn = len(l.first) > 0 && l.receiving > 0; l.firstOn {
		l.firstLook.Reset(l.stall / firstLooks)
	}
	l.mu.Unlock()
	st := grpcstatus.Newf(codes.DeadlineExceeded, "no message of this call has come for %v: send it, and close calls that are not needed", l.stall)
	for _, ctx := range late {
		if s, ok := grpc.ServerTransportStreamFromContext(ctx).(interface {
			WriteStatus(st *grpcstatus.Status) error
		}); ok {
			_ = s.WriteStatus(st) // it ends the call's wait; an error means that the client has left
		}
	}
}

// firstBounded returns a service whose calls wait for their first message for the stall time at most.
func (s *service) firstBounded(desc *grpc.ServiceDesc) *grpc.ServiceDesc {
	d := *desc
	d.Methods = slices.Clone(d.Methods)
	for i := range d.Methods {
		m := &d.Methods[i]
		if m.MethodName == methodInfer {
			continue // it does so itself, without an allocation
		}
		handle := m.Handler
		m.Handler = func(srv any, ctx context.Context, receive func(any) error, with grpc.UnaryServerInterceptor) (any, error) {
			return handle(srv, ctx, func(v any) error {
				f, l := new(firstMessage), connectionOf(ctx, s.set.InFlight)
				l.awaitFirst(ctx, f)
				defer l.firstCame(f)
				return receive(v)
			}, with)
		}
	}
	return &d
}

// firstStream is a stream that waits for its first message for the stall time at most.
type firstStream struct {
	grpc.ServerStream
	l    *connection
	came bool // only the receiving goroutine uses it
}

// RecvMsg implements grpc.ServerStream.
func (s *firstStream) RecvMsg(v any) error {
	if s.came {
		return s.ServerStream.RecvMsg(v)
	}
	s.came = true
	f := new(firstMessage)
	s.l.awaitFirst(s.Context(), f)
	defer s.l.firstCame(f)
	return s.ServerStream.RecvMsg(v)
}

package grpcapi

import (
	"cmp"
	"context"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/tutti-server/tutti/core/status"
)

// reflectionPrefix begins the methods of grpc's reflection service, of all its versions.
const reflectionPrefix = "/grpc.reflection."

const (
	// maxReflections is how many reflection streams may be open at a time. While the client of one takes no responses, grpc reads no
	// more requests of it, and holds up to window bytes of them that nothing counts.
	maxReflections = 32
	// reflectionStalls is for how many stall times one may be open.
	reflectionStalls = 5
)

// reflectionStream is a stream of the reflection service. It notes whether it waits for its client to take a response.
type reflectionStream struct {
	grpc.ServerStream
	sending atomic.Bool
}

// SendMsg implements grpc.ServerStream.
func (r *reflectionStream) SendMsg(m any) error {
	r.sending.Store(true)
	defer r.sending.Store(false)
	return r.ServerStream.SendMsg(m)
}

// reflect has a handler serve a reflection stream, for a bounded time.
func (s *service) reflect(ctx context.Context, ss grpc.ServerStream, handle func(grpc.ServerStream) error) error {
	defer s.reflections.Add(-1)
	if s.reflections.Add(1) > maxReflections {
		return refusal(ctx, &status.Error{Code: status.Unavailable, Reason: status.LimitReached, RetryAfter: time.Second, Msg: "too many reflection streams are open: close those that are not needed, and try again"})
	}
	r, most := &reflectionStream{ServerStream: ss}, reflectionStalls*cmp.Or(max(0, s.set.StallTimeout), defaultStall)
	end := time.AfterFunc(most, func() { s.endReflection(ctx, r, most) })
	defer end.Stop()
	return handle(r)
}

// endReflection ends a stream that is open for too long. If its client takes no responses, it would not take the status either: then the
// connection is closed.
func (s *service) endReflection(ctx context.Context, r *reflectionStream, after time.Duration) {
	if l := connectionOf(ctx, s.set.InFlight); l != nil && r.sending.Load() {
		_ = l.Close()
	} else if from, ok := grpc.ServerTransportStreamFromContext(ctx).(transportStream); ok {
		_ = from.WriteStatus(grpcstatus.Newf(codes.DeadlineExceeded, "a reflection stream is open for %v at most: open another one", after))
	}
}

// isReflection reports whether a method is of the reflection service.
func isReflection(method string) bool { return strings.HasPrefix(method, reflectionPrefix) }

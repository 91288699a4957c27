package grpcapi

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/tutti-server/tutti/proto/inference"
)

// health answers the standard health protocol; the service asked about does not matter.
type health struct {
	grpc_health_v1.UnimplementedHealthServer
	svc *service
}

func (h *health) state() grpc_health_v1.HealthCheckResponse_ServingStatus {
	if h.svc.ready() {
		return grpc_health_v1.HealthCheckResponse_SERVING
	}
	return grpc_health_v1.HealthCheckResponse_NOT_SERVING
}

// Check mirrors ServerReady.
func (h *health) Check(context.Context, *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	return &grpc_health_v1.HealthCheckResponse{Status: h.state()}, nil
}

// List answers Check for every service that has a name.
func (h *health) List(context.Context, *grpc_health_v1.HealthListRequest) (*grpc_health_v1.HealthListResponse, error) {
	return &grpc_health_v1.HealthListResponse{Statuses: map[string]*grpc_health_v1.HealthCheckResponse{
		"": {Status: h.state()}, inference.GRPCInferenceService_ServiceDesc.ServiceName: {Status: h.state()},
	}}, nil
}

// lookAgain is after how long a watcher looks at a state that nobody told to have changed.
const lookAgain = time.Second

// Watch tells the state and each change of it, until the server shuts down.
func (h *health) Watch(_ *grpc_health_v1.HealthCheckRequest, stream grpc.ServerStreamingServer[grpc_health_v1.HealthCheckResponse]) error {
	timer := time.NewTicker(lookAgain)
	defer timer.Stop()
	ctx, cancel := inTime(stream.Context())
	defer cancel()
	told := grpc_health_v1.HealthCheckResponse_UNKNOWN
	for {
		changed := h.svc.watchers.changed()
		if now := h.state(); now != told {
			told = now
			if err := stream.Send(&grpc_health_v1.HealthCheckResponse{Status: now}); err != nil {
				return err
			}
		}
		if h.svc.leaving() {
			return wireError(errLeaving)
		}
		select {
		case <-changed:
		case <-timer.C:
		case <-h.svc.exit:
		case <-ctx.Done():
			return wireError(ctx.Err())
		}
	}
}

// watchers are told together that something may have changed.
type watchers struct {
	mu   sync.Mutex
	next chan struct{} // closed by wake; guarded by mu, nil when nobody waits
}

// changed returns a channel that is closed at the next change.
func (w *watchers) changed() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.next == nil {
		w.next = make(chan struct{})
	}
	return w.next
}

func (w *watchers) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.next != nil {
		close(w.next)
		w.next = nil
	}
}

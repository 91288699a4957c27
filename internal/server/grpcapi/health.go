package grpcapi

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/tutti-server/tutti/proto/inference"
)

// health implements the standard gRPC health protocol. The name of the service is ignored.
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

// Check returns SERVING if ServerReady does.
func (h *health) Check(context.Context, *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	return &grpc_health_v1.HealthCheckResponse{Status: h.state()}, nil
}

// List returns the result of Check for every named service.
func (h *health) List(context.Context, *grpc_health_v1.HealthListRequest) (*grpc_health_v1.HealthListResponse, error) {
	return &grpc_health_v1.HealthListResponse{Statuses: map[string]*grpc_health_v1.HealthCheckResponse{
		"": {Status: h.state()}, inference.GRPCInferenceService_ServiceDesc.ServiceName: {Status: h.state()},
	}}, nil
}

// recheckInterval is the time between two looks at a state whose change nothing announced.
const recheckInterval = time.Second

// Watch sends the state and each change of it, until the server shuts down.
func (h *health) Watch(_ *grpc_health_v1.HealthCheckRequest, stream grpc.ServerStreamingServer[grpc_health_v1.HealthCheckResponse]) error {
	timer := time.NewTicker(recheckInterval)
	defer timer.Stop()
	ctx, cancel := beforeDeadline(stream.Context())
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
		if h.svc.shuttingDown() {
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

// watchers wakes all Watch calls when the state may have changed.
type watchers struct {
	mu   sync.Mutex
	next chan struct{} // closed by wake; guarded by mu, nil without watchers
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

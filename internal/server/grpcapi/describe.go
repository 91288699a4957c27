package grpcapi

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/identity"
	"github.com/tutti-server/tutti/proto/inference"
)

// The interceptor converts the errors of the methods without tensors with wireError.

func (s *service) live() bool  { return !s.refuses() && (s.set.Live == nil || s.set.Live()) }
func (s *service) ready() bool { return s.live() && s.set.Catalog.Ready() }

// ServerLive reports whether the server is live.
func (s *service) ServerLive(context.Context, *inference.ServerLiveRequest) (*inference.ServerLiveResponse, error) {
	return &inference.ServerLiveResponse{Live: s.live()}, nil
}

// ServerReady reports whether every model that should serve is ready.
func (s *service) ServerReady(context.Context, *inference.ServerReadyRequest) (*inference.ServerReadyResponse, error) {
	return &inference.ServerReadyResponse{Ready: s.ready()}, nil
}

// ModelReady reports whether a version serves. An unknown version is not ready, without an error: clients poll
// until it is.
func (s *service) ModelReady(_ context.Context, req *inference.ModelReadyRequest) (*inference.ModelReadyResponse, error) {
	ready, err := query("ModelReady", req.GetName(), req.GetVersion(), func(name string, version int64) (bool, error) {
		return s.set.Catalog.ModelReady(name, version) == nil, nil
	})
	return &inference.ModelReadyResponse{Ready: ready}, err
}

// query calls of with the version of a request that must name a model.
func query[T any](method, name, version string, of func(name string, version int64) (T, error)) (v T, err error) {
	if name == "" {
		return v, status.Errorf(status.InvalidArg, "Missing model name in %s request", method)
	}
	number, err := infer.ParseVersion(version)
	if err == nil {
		v, err = of(name, number)
	}
	return v, err
}

// ServerMetadata returns the server's name, version and extensions.
func (s *service) ServerMetadata(context.Context, *inference.ServerMetadataRequest) (*inference.ServerMetadataResponse, error) {
	return &inference.ServerMetadataResponse{Name: s.set.Name, Version: s.set.Version, Extensions: s.set.Extensions}, nil
}

// ModelMetadata describes a model's inputs and outputs.
func (s *service) ModelMetadata(_ context.Context, req *inference.ModelMetadataRequest) (*inference.ModelMetadataResponse, error) {
	m, err := query("ModelMetadata", req.GetName(), req.GetVersion(), s.set.Catalog.Metadata)
	if err != nil {
		return nil, err
	}
	resp := &inference.ModelMetadataResponse{}
	return resp, convert(m, resp)
}

// ModelConfig returns a model's completed configuration.
func (s *service) ModelConfig(_ context.Context, req *inference.ModelConfigRequest) (*inference.ModelConfigResponse, error) {
	cfg, err := query("ModelConfig", req.GetName(), req.GetVersion(), s.set.Catalog.Config)
	return &inference.ModelConfigResponse{Config: cfg}, err
}

// ModelStatistics returns the statistics of one version, of a model's versions, or of all models if the request
// names none.
func (s *service) ModelStatistics(ctx context.Context, req *inference.ModelStatisticsRequest) (*inference.ModelStatisticsResponse, error) {
	version, err := infer.ParseVersion(req.GetVersion())
	if err != nil {
		return nil, err
	}
	list, err := s.set.Catalog.Statistics(req.GetName(), version)
	if err != nil {
		return nil, err
	}
	if who := identity.From(ctx); who != nil {
		list = slices.DeleteFunc(slices.Clone(list), func(m infer.Statistics) bool { return !who.Sees(identity.GroupOf(infer.APIStatistics), m.Name) })
	}
	resp := &inference.ModelStatisticsResponse{}
	return resp, convert(list, &resp.ModelStats)
}

// convert copies a description of core/infer into its message. Both have the protocol's names in JSON.
func convert(from, to any) error {
	b, err := json.Marshal(from)
	return cmp.Or(err, json.Unmarshal(b, to))
}

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

// maxWatches is how many Watch calls may be open at a time, of all connections. Each has a goroutine, a timer and 13 KB of memory.
const maxWatches = 10_000

// Watch sends the state and each change of it, until the server shuts down.
func (h *health) Watch(_ *grpc_health_v1.HealthCheckRequest, stream grpc.ServerStreamingServer[grpc_health_v1.HealthCheckResponse]) error {
	timer := time.NewTicker(time.Second) // for a change that nothing announced
	defer timer.Stop()
	ctx, cancel := beforeDeadline(stream.Context())
	defer cancel()
	defer h.svc.watches.Add(-1)
	if h.svc.watches.Add(1) > maxWatches {
		return refusal(ctx, &status.Error{Code: status.Unavailable, Reason: status.LimitReached, RetryAfter: time.Second, Msg: "too many calls of Watch are open: call Check, or try again later"})
	}
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
			return refusal(ctx, errLeaving)
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

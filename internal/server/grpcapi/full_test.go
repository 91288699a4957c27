package grpcapi_test

import (
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/tutti-server/tutti/internal/server/grpcapi"
	"github.com/tutti-server/tutti/internal/server/servertest"
	"github.com/tutti-server/tutti/proto/inference"
)

// TestStreamsWhileFull opens streams while requests are refused because the memory is full: they are refused too, since each would take
// more of it. Those that are open stay, and single health checks are answered.
func TestStreamsWhileFull(t *testing.T) {
	t.Parallel()
	e, inFlight := servertest.NewEcho(), counter(t, 64<<20)
	_, conn, _ := serveWith(t, grpcapi.Settings{Infer: e, Catalog: e, InFlight: inFlight})
	health := grpc_health_v1.NewHealthClient(conn)
	watch := func() (grpc_health_v1.Health_WatchClient, error) {
		w, err := health.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
		if err == nil {
			_, err = w.Recv()
		}
		return w, err
	}
	open, err := watch()
	if err != nil {
		t.Fatal(err)
	}
	inFlight.Block(errors.New("the memory is full"))
	_, err = watch()
	wantError(t, err, codes.Unavailable, "no room for another request: the memory is full")
	s, err := inference.NewGRPCInferenceServiceClient(conn).ModelStreamInfer(t.Context())
	if err == nil {
		_, err = s.Recv()
	}
	wantError(t, err, codes.Unavailable, "no room for another request: the memory is full")
	if _, err := health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Errorf("a single check: %v", err)
	}
	inFlight.Block(nil)
	if _, err := watch(); err != nil {
		t.Errorf("with room again: %v", err)
	}
	e.NotReady.Store(true)
	if resp, err := open.Recv(); err != nil || resp.GetStatus() != grpc_health_v1.HealthCheckResponse_NOT_SERVING {
		t.Errorf("the stream that was open: %v, %v", resp, err)
	}
}

// TestWatches opens more calls of Watch than all connections together may.
func TestWatches(t *testing.T) {
	t.Parallel()
	_, conn, _, s := serve(t)
	watch := func() error {
		w, err := grpc_health_v1.NewHealthClient(conn).Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
		if err == nil {
			_, err = w.Recv()
		}
		return err
	}
	s.AddWatches(1)
	wantError(t, watch(), codes.Unavailable, "too many calls of Watch are open: call Check, or try again later")
	s.AddWatches(-1)
	if err := watch(); err != nil {
		t.Error(err)
	}
}

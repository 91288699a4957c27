package grpcapi_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/server/grpcapi"
	"github.com/tutti-server/tutti/internal/server/servertest"
	"github.com/tutti-server/tutti/proto/inference"
)

// held responds as Echo does, but only after free is closed, even when the caller no longer waits.
type held struct {
	*servertest.Echo
	free chan struct{}
}

func (h *held) Submit(ctx context.Context, req *infer.Request, sink infer.Sink) {
	go func() {
		<-h.free
		h.Echo.Submit(context.WithoutCancel(ctx), req, sink)
	}()
}

func (h *held) ModelReady(string, int64) error {
	<-h.free
	return nil
}

// TestDeadline checks the status of calls whose requests cannot be interrupted. grpc's client has another text for
// its own deadline, so the text shows which side was first. On a slow machine the server is not first at every
// attempt.
func TestDeadline(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		call func(context.Context, inference.GRPCInferenceServiceClient, grpc_health_v1.HealthClient) error
	}{
		{"ModelInfer", func(ctx context.Context, c inference.GRPCInferenceServiceClient, _ grpc_health_v1.HealthClient) error {
			_, err := c.ModelInfer(ctx, message(t, `model_name: "echo"`+xAB))
			return err
		}},
		{"ModelReady", func(ctx context.Context, c inference.GRPCInferenceServiceClient, _ grpc_health_v1.HealthClient) error {
			_, err := c.ModelReady(ctx, &inference.ModelReadyRequest{Name: "echo"})
			return err
		}},
		{"ModelStreamInfer", func(ctx context.Context, c inference.GRPCInferenceServiceClient, _ grpc_health_v1.HealthClient) error {
			s, err := c.ModelStreamInfer(ctx)
			if err != nil {
				return err
			}
			if err := s.Send(message(t, `model_name: "echo"`+xAB)); err != nil {
				return err
			}
			m, err := s.Recv()
			if err == nil {
				return errors.New("the stream said " + m.String())
			}
			return err
		}},
		{"Watch", func(ctx context.Context, _ inference.GRPCInferenceServiceClient, h grpc_health_v1.HealthClient) error {
			w, err := h.Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
			for err == nil {
				_, err = w.Recv()
			}
			return err
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := &held{servertest.NewEcho(), make(chan struct{})}
			c, conn, _ := serveWith(t, grpcapi.Settings{Infer: h, Catalog: h})
			t.Cleanup(func() { close(h.free) }) // before the server stops, which waits for the requests
			text := ""
			for range 50 {
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				err := tt.call(ctx, c, grpc_health_v1.NewHealthClient(conn))
				cancel()
				if status.Code(err) != codes.DeadlineExceeded {
					t.Fatalf("got %v, want the deadline", err)
				}
				if text = status.Convert(err).Message(); text == "Deadline Exceeded" {
					return
				}
			}
			t.Errorf("the client ended the call itself: %s", text)
		})
	}
}

// TestAwait checks methods that end before and after the deadline of their call.
func TestAwait(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name                 string
		takes, timeout, want time.Duration
		dropped, failed      bool
	}{
		{name: "no deadline", takes: time.Hour, want: time.Hour},
		{name: "in time", takes: time.Second, timeout: time.Minute, want: time.Second},
		{name: "late", takes: time.Hour, timeout: time.Minute, want: time.Minute - 10*time.Millisecond, dropped: true, failed: true},
		{name: "soon", takes: time.Hour, timeout: 20 * time.Millisecond, want: 19 * time.Millisecond, dropped: true, failed: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				if tt.timeout > 0 {
					ctx, cancel = context.WithTimeout(ctx, tt.timeout)
				}
				defer cancel()
				began, dropped := time.Now(), false
				v, err := grpcapi.Await(ctx, func(context.Context) (int, error) {
					time.Sleep(tt.takes) //nolint:forbidigo // the clock is synctest's
					return 7, nil
				}, func(v int) { dropped = v == 7 })
				if took := time.Since(began); took != tt.want {
					t.Errorf("it ended after %v, want %v", took, tt.want)
				}
				if failed := errors.Is(err, context.DeadlineExceeded); failed != tt.failed || !failed && v != 7 {
					t.Errorf("got %d, %v", v, err)
				}
				time.Sleep(tt.takes) //nolint:forbidigo // as above
				synctest.Wait()
				if dropped != tt.dropped {
					t.Errorf("the late value was dropped: %v, want %v", dropped, tt.dropped)
				}
			})
		})
	}
}

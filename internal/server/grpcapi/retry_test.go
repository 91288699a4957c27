package grpcapi_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/server/grpcapi"
	"github.com/tutti-server/tutti/internal/server/servertest"
	"github.com/tutti-server/tutti/proto/inference"
)

// full refuses every request.
type full struct{}

// Submit refuses the request.
func (full) Submit(_ context.Context, req *infer.Request, sink infer.Sink) {
	req.Release()
	sink.Close(&status.Error{Code: status.Unavailable, Msg: "Exceeds maximum queue size", RetryAfter: 1500 * time.Millisecond})
}

// TestRetryAfter checks that the trailer has the retry delay in whole seconds.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	c, _, _ := serveWith(t, grpcapi.Settings{Infer: full{}, Catalog: servertest.NewEcho()})
	var trailer metadata.MD
	_, err := c.ModelInfer(t.Context(), &inference.ModelInferRequest{ModelName: "echo"}, grpc.Trailer(&trailer))
	wantError(t, err, codes.Unavailable, "Exceeds maximum queue size")
	if got := trailer.Get("retry-after"); len(got) != 1 || got[0] != "2" {
		t.Errorf("retry-after is %q, want 2", got)
	}
}

package grpcapi

import (
	"context"

	"tutti/proto/inference"
)

// Infer calls ModelInfer without a socket.
func Infer(ctx context.Context, set Settings, msg *inference.ModelInferRequest) (*inference.ModelInferResponse, error) {
	return (&service{set: set}).ModelInfer(ctx, msg)
}

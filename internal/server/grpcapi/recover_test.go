package grpcapi_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/logs"
	"github.com/tutti-server/tutti/internal/server/grpcapi"
	"github.com/tutti-server/tutti/internal/server/servertest"
	"github.com/tutti-server/tutti/proto/inference"
)

// broken panics at requests with the id "broken".
type broken struct {
	*servertest.Echo
	lifecycle
}

// Submit panics before it passes the request on.
func (b *broken) Submit(ctx context.Context, req *infer.Request, sink infer.Sink) {
	if req.ID == "broken" {
		panic("no such defect")
	}
	b.Echo.Submit(ctx, req, sink)
}

// Load panics.
func (*broken) Load(_ context.Context, _ string, _ infer.LoadOptions) error {
	panic("no such defect")
}

// TestPanics checks that a panic of a method fails only its call, and that the log has the method and the stack.
// shows: recovery
func TestPanics(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	journal, err := logs.New(logs.Settings{Info: true, Warning: true, Error: true, Format: logs.JSON}, &out, &errs)
	if err != nil {
		t.Fatal(err)
	}
	b := &broken{Echo: servertest.NewEcho()}
	// A request that panics is not released, so a checked allocator would report it.
	c, _, _ := serveWith(t, grpcapi.Settings{Alloc: tensor.NewPool(), Infer: b, Catalog: b.Echo, Lifecycle: b, Log: journal})
	const input = `inputs { name: "X" datatype: "FP32" shape: 1 contents { fp32_contents: 1 } }`
	internal := func(err error, method string) {
		t.Helper()
		if s := status.Convert(err); s.Code() != codes.Internal || !strings.HasSuffix(s.Message(), method+" failed: panic: no such defect") {
			t.Errorf("%s gave %v", method, err)
		}
		if _, err := c.ModelInfer(t.Context(), message(t, `model_name: "echo" `+input)); err != nil {
			t.Errorf("after %s: %v", method, err)
		}
	}
	_, err = c.ModelInfer(t.Context(), message(t, `model_name: "echo" id: "broken" `+input))
	internal(err, "ModelInfer")
	_, err = c.RepositoryModelLoad(t.Context(), &inference.RepositoryModelLoadRequest{ModelName: "m"})
	internal(err, "RepositoryModelLoad")
	timed, cancel := context.WithTimeout(t.Context(), time.Hour) // calls with a deadline run in a separate goroutine
	defer cancel()
	_, err = c.ModelInfer(timed, message(t, `model_name: "echo" id: "broken" `+input))
	internal(err, "ModelInfer")
	_, err = c.RepositoryModelLoad(timed, &inference.RepositoryModelLoadRequest{ModelName: "m"})
	internal(err, "RepositoryModelLoad")
	stream, err := c.ModelStreamInfer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(message(t, `model_name: "echo" id: "broken" `+input)); err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	internal(err, "ModelStreamInfer")
	if err := journal.Close(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"method":"ModelInfer"`, `/RepositoryModelLoad"`, `"method":"ModelStreamInfer"`, "grpcapi_test.(*broken).Submit", "grpcapi_test.(*broken).Load"} {
		if !strings.Contains(errs.String(), want) {
			t.Errorf("the log lacks %s:\n%s", want, &errs)
		}
	}
}

package python_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// slowClient takes a response once read is closed. sent is closed when the first one is there.
type slowClient struct{ sent, read chan struct{} }

var _ backends.Responses = slowClient{}

// Respond implements backends.Responses.
func (c slowClient) Respond(_ int, out []tensor.Tensor, _ infer.Params, _ bool) error {
	defer tensor.ReleaseAll(out)
	close(c.sent)
	<-c.read
	return nil
}

// Detach implements backends.Responses. It does nothing: the test itself sends the next batch.
func (slowClient) Detach() {}

// sendTo executes a request of one number.
func sendTo(ctx context.Context, x backends.Instance, alloc tensor.Allocator, value float32, to backends.Responses) error {
	in, err := tensor.New(alloc, tensor.FP32, tensor.Of(1))
	if err != nil {
		return err
	}
	defer in.Release()
	tensor.Slice[float32](&in)[0] = value
	b := &backends.Batch{Rows: 1, In: []tensor.Tensor{in}, Out: make([]tensor.Tensor, 1), Allocator: alloc, Responses: to}
	b.Requests = []backends.Request{{Ctx: ctx, Rows: 1}}
	return errors.Join(x.Execute(ctx, b), b.Requests[0].Err)
}

// TestWorkerDiesBesideSlowClient ends a worker while a client takes no response of an earlier request: the request that was executed ends,
// and the next one is served by another worker, although the client still takes nothing.
func TestWorkerDiesBesideSlowClient(t *testing.T) {
	t.Parallel()
	cfg, err := config.Load("testdata/models/detached")
	if err != nil {
		t.Fatal(err)
	}
	s := settings(t, "detached", cfg)
	x := running(t, opened(t, options(t)), s, 1)[0]
	c := slowClient{make(chan struct{}), make(chan struct{})}
	slow := make(chan error, 1)
	go func() { slow <- sendTo(t.Context(), x, s.Alloc, 1, c) }()
	<-c.sent
	var none, got values
	err = sendTo(t.Context(), x, s.Alloc, 2, &none)
	if status.CodeOf(err) != status.Unavailable || !strings.HasSuffix(status.Text(err), "exited: exit status 3; send the request again") {
		t.Errorf("the request that ends the worker: %v", err)
	}
	if err := sendTo(t.Context(), x, s.Alloc, 7, &got); err != nil || len(got) != 1 || got[0] != 7 {
		t.Errorf("the next request: %v, %v", got, err)
	}
	close(c.read)
	if err := <-slow; status.CodeOf(err) != status.Internal || !strings.HasSuffix(status.Text(err), "it had sent 1 responses, which come again if the request is sent again") {
		t.Errorf("the request of the slow client: %v", err)
	}
}

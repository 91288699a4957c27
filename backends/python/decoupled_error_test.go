package python_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// values collects the responses of a decoupled model with one number each.
type values []float32

var _ backends.Responses = (*values)(nil)

// Respond implements backends.Responses.
func (v *values) Respond(_ int, out []tensor.Tensor, _ infer.Params, _ bool) error {
	*v = append(*v, tensor.Slice[float32](&out[0])...)
	tensor.ReleaseAll(out)
	return nil
}

// Detach implements backends.Responses. It does nothing: there is no next batch.
func (*values) Detach() {}

// TestErrorBetweenResponses checks an error that a decoupled model sends before its last response: the request
// fails with it, and later responses are still delivered.
func TestErrorBetweenResponses(t *testing.T) {
	t.Parallel()
	o := options(t)
	cfg, err := config.Load("testdata/models/stumble")
	if err != nil {
		t.Fatal(err)
	}
	s := settings(t, "stumble", cfg)
	x := running(t, opened(t, o), s, 1)[0]
	in, err := tensor.New(s.Alloc, tensor.FP32, tensor.Of(1))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Release()
	var got values
	b := &backends.Batch{Rows: 1, In: []tensor.Tensor{in}, Out: make([]tensor.Tensor, 1), Allocator: s.Alloc, Responses: &got}
	b.Requests = []backends.Request{{Ctx: t.Context(), Rows: 1}}
	if err := x.Execute(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(values{1, 2}, got); diff != "" {
		t.Errorf("responses (-want +got):\n%s", diff)
	}
	if err := b.Requests[0].Err; status.CodeOf(err) != status.NotFound || status.Text(err) != "stumbled" {
		t.Errorf("the request ended with %v, want the model's error", err)
	}
}

// TestWorkerDies checks the error of a stream whose worker exits: before the first response it may be sent again, and the error has a
// time after which; afterwards it says that the responses come again.
func TestWorkerDies(t *testing.T) {
	t.Parallel()
	cfg, err := config.Load("testdata/models/dies")
	if err != nil {
		t.Fatal(err)
	}
	s := settings(t, "dies", cfg)
	x := running(t, opened(t, options(t)), s, 1)[0]
	for _, tt := range []struct {
		responses float32
		code      status.Code
		retry     time.Duration
		want      string
	}{
		{0, status.Unavailable, time.Second, "exited: exit status 3; send the request again"},
		{2, status.Internal, 0, "exited: exit status 3; it had sent 2 responses, which come again if the request is sent again"},
		{0, status.Unavailable, time.Second, "exited: exit status 3; send the request again"},
	} {
		in, err := tensor.New(s.Alloc, tensor.FP32, tensor.Of(1))
		if err != nil {
			t.Fatal(err)
		}
		tensor.Slice[float32](&in)[0] = tt.responses
		var got values
		b := &backends.Batch{Rows: 1, In: []tensor.Tensor{in}, Out: make([]tensor.Tensor, 1), Allocator: s.Alloc, Responses: &got}
		b.Requests = []backends.Request{{Ctx: t.Context(), Rows: 1}}
		if err := x.Execute(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		in.Release()
		err = b.Requests[0].Err
		if len(got) != int(tt.responses) || status.CodeOf(err) != tt.code || status.RetryAfter(err) != tt.retry || !strings.HasSuffix(status.Text(err), tt.want) {
			t.Errorf("after %v responses: %d came, and %v: %v, to be sent again after %v; want %v, %q, %v",
				tt.responses, len(got), status.CodeOf(err), err, status.RetryAfter(err), tt.code, tt.want, tt.retry)
		}
	}
}

// TestUnsafeNames checks that models are refused whose names Triton does not accept for a stub process.
func TestUnsafeNames(t *testing.T) {
	t.Parallel()
	b := opened(t, options(t))
	for _, name := range []string{"model;test", "model$test", `model"test"`, "model(test)", `model\test`, "model'test'"} {
		s := settings(t, "add_sub", addSub(8))
		s.Model = name
		m, err := b.Load(t.Context(), s)
		if err == nil {
			_ = m.Close()
			t.Errorf("'%s' is loaded", name)
			continue
		}
		if text := status.Text(err); status.CodeOf(err) != status.InvalidArg || !strings.Contains(text, "Invalid stub name: contains invalid characters") {
			t.Errorf("'%s' is refused with %v", name, err)
		}
	}
}

package python_test

import (
	"context"
	"slices"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
)

// TestRetainedInputs checks that inputs which a model retains or returns do not change, nor earlier outputs, while
// the worker may reuse the memory of inputs for large outputs.
func TestRetainedInputs(t *testing.T) {
	t.Parallel()
	x, alloc := overInstance(t)
	var held [3]tensor.Tensor
	var want [3][]float32
	defer tensor.ReleaseAll(held[:])
	for round := range 60 {
		n := 1<<18 - round*64
		if round%20 >= 16 {
			n *= 2 // more than the initial size of a region
		}
		values := make([]float32, n)
		for i := range values {
			values[i] = float32(round*7 + i%1000)
		}
		way := round % 10
		values[0] = float32(way)
		at := round % len(held)
		held[at].Release()
		held[at] = over(t.Context(), t, x, alloc, values)
		want[at] = overResponse(way, values)
		for i := range held {
			if held[i].Present() && !slices.Equal(tensor.Slice[float32](&held[i]), want[i]) {
				t.Fatalf("round %d: the response of round %d has changed", round, round-(at-i+len(held))%len(held))
			}
		}
	}
}

// TestSmallView checks that an output which is a small part of the inputs is copied. As a view it would keep the memory of all inputs while the
// response is sent or kept.
func TestSmallView(t *testing.T) {
	t.Parallel()
	x, alloc := overInstance(t)
	const small = 1 << 14 // elements: 64 KiB, because the server copies less in any case
	values := make([]float32, 1<<18)
	for i := range values {
		values[i] = float32(i)
	}
	for way, where := range map[float32]string{1: "in the inputs", 10: "copied"} {
		values[0] = way
		out := over(t.Context(), t, x, alloc, values)
		want := values
		if way == 10 {
			want = values[len(values)-small:]
		}
		if got := tensor.Slice[float32](&out); !slices.Equal(got, want) {
			t.Errorf("an output that is %s: other values", where)
		}
		if used := out.Off + out.Len; way == 10 && used > 4*small {
			t.Errorf("an output of %d bytes ends at byte %d of its memory, expected a copy", 4*small, used)
		}
		out.Release()
	}
}

// overInstance returns an instance of the model 'over' and the allocator of its tensors.
func overInstance(t *testing.T) (backends.Instance, tensor.Allocator) {
	t.Helper()
	cfg, err := config.Load("testdata/models/over")
	if err != nil {
		t.Fatal(err)
	}
	s := settings(t, "over", cfg)
	return running(t, opened(t, options(t)), s, 1)[0], s.Alloc
}

// over executes a request and returns its output.
func over(ctx context.Context, t *testing.T, x backends.Instance, alloc tensor.Allocator, values []float32) tensor.Tensor {
	t.Helper()
	in, err := tensor.New(alloc, tensor.FP32, tensor.Of(int64(len(values))))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Release()
	copy(tensor.Slice[float32](&in), values)
	b := &backends.Batch{Rows: 1, In: []tensor.Tensor{in}, Out: make([]tensor.Tensor, 1), Allocator: alloc}
	b.Requests = []backends.Request{{Ctx: ctx, Rows: 1}}
	if err := x.Execute(ctx, b); err != nil || b.Requests[0].Err != nil {
		t.Fatal(err, b.Requests[0].Err)
	}
	return b.Out[0].Move()
}

func overResponse(way int, values []float32) []float32 {
	out := slices.Clone(values)
	if way == 6 {
		slices.Reverse(out)
	}
	if way == 1 || way == 6 || way == 9 {
		return out
	}
	for i := range out {
		out[i]++
	}
	if way == 8 {
		out = append(out, values...)
	}
	return out
}

package python_test

import (
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// TestShapes checks more different shapes in turn than a worker caches, each of them twice.
func TestShapes(t *testing.T) {
	t.Parallel()
	s := settings(t, "plus", &modelconfig.ModelConfig{
		Input: []*modelconfig.ModelInput{input("IN", tensor.FP32, -1)}, Output: []*modelconfig.ModelOutput{output("OUT", tensor.FP32, -1)},
	})
	x := running(t, opened(t, options(t)), s, 1)[0]
	for i := range 140 {
		n := i / 2 // the first is 0
		in, err := tensor.New(s.Alloc, tensor.FP32, tensor.Of(int64(n)))
		if err != nil {
			t.Fatal(err)
		}
		for k := range n {
			tensor.Slice[float32](&in)[k] = float32(i + k)
		}
		b := &backends.Batch{Rows: 1, In: []tensor.Tensor{in}, Out: make([]tensor.Tensor, 1), Allocator: s.Alloc, Requests: []backends.Request{{Ctx: t.Context(), Rows: 1}}}
		if err := x.Execute(t.Context(), b); err != nil || b.Requests[0].Err != nil {
			t.Fatal(err, b.Requests[0].Err)
		}
		got := tensor.Slice[float32](&b.Out[0])
		if len(got) != n || n > 0 && (got[0] != float32(i+1) || got[n-1] != float32(i+n)) {
			t.Errorf("%d numbers from %d on: got %v", n, i, got)
		}
		tensor.ReleaseAll([]tensor.Tensor{in, b.Out[0]})
	}
}

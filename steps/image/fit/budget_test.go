//go:build !race

// Under the race detector pools drop what they are given at random.

package fit_test

import (
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/image/fit"
)

// TestAllocBudget holds the steps to no allocation once their scratch has grown.
func TestAllocBudget(t *testing.T) {
	for _, f := range []steps.Factory{fit.NewFactory(), fit.NewRotateFactory()} {
		params, err := f.Resolve(nil)
		if err != nil {
			t.Fatal(err)
		}
		step, err := f.New(&steps.Settings{Model: "m", Params: params})
		if err != nil {
			t.Fatal(err)
		}
		alloc := tensor.NewPool()
		b := &backends.Batch{Rows: 1, Requests: []backends.Request{{Rows: 1}}, In: make([]tensor.Tensor, 2), Out: make([]tensor.Tensor, 1), Allocator: alloc}
		if b.In[0], err = tensor.New(alloc, tensor.Uint8, tensor.Of(30, 40, 3)); err != nil {
			t.Fatal(err)
		}
		if b.In[1], err = tensor.New(alloc, tensor.FP32, tensor.Of(2)); err != nil {
			t.Fatal(err)
		}
		n := testing.AllocsPerRun(100, func() {
			if err := step.Run(t.Context(), b); err != nil || b.Requests[0].Err != nil {
				t.Fatal(err, b.Requests[0].Err)
			}
		})
		if n >= 1 {
			t.Errorf("%s: %v allocations", f.Name, n)
		}
		tensor.ReleaseAll(b.In)
		tensor.ReleaseAll(b.Out)
	}
}

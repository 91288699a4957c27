//go:build !race

package tensor_test

import (
	"testing"

	"github.com/tutti-server/tutti/core/tensor"
)

// TestPoolAllocBudget checks that the pool allocates nothing in steady state. It is not parallel: the runtime
// counts the allocations of the whole process.
func TestPoolAllocBudget(t *testing.T) {
	p := tensor.NewPool()
	shape := tensor.Of(2, 8)
	for _, n := range []int{0, 100, mib, 2 * mib} {
		if got := testing.AllocsPerRun(100, func() {
			b, err := p.Alloc(n)
			if err != nil {
				t.Fatal(err)
			}
			b.Retain().Release()
			b.Release()
		}); got != 0 {
			t.Errorf("%v allocations per buffer of %d bytes, want none", got, n)
		}
	}
	if got := testing.AllocsPerRun(100, func() {
		x, err := tensor.New(p, tensor.FP32, shape.Tail().Prepend(3))
		if err != nil {
			t.Fatal(err)
		}
		x.Release()
	}); got != 0 {
		t.Errorf("%v allocations per tensor, want none", got)
	}
}

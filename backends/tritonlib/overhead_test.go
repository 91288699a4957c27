//go:build cgo

package tritonlib_test

import (
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/backendtest"
	"github.com/tutti-server/tutti/core/tensor"
)

// oneRow returns a model with two inputs and a batch of one row, in the server's shared memory as those of requests are.
func oneRow(tb testing.TB) (*bench, *backends.Batch) {
	tb.Helper()
	s := settings(tb, "addsub", addsub)
	b := open(tb, backends.Options{}, s)
	b.pool = s.Alloc.(*tensor.Pool)
	row := fp32([]int64{1, 2}, 1, 2)
	batch := b.batch(do{in: []backendtest.Value{row, row}})
	tb.Cleanup(func() { tensor.ReleaseAll(batch.In) })
	return b, batch
}

// TestExecuteAllocBudget checks that executions make no Go allocation in the steady state.
func TestExecuteAllocBudget(t *testing.T) {
	b, batch := oneRow(t)
	if n := testing.AllocsPerRun(200, func() {
		if err := b.x.Execute(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
		tensor.ReleaseAll(batch.Out)
	}); n != 0 {
		t.Errorf("%v allocations per batch, want none", n)
	}
}

// BenchmarkOverhead measures an execution of the two-input model and the release of its outputs. The library computes for less than a tenth of a
// microsecond, so all of it is the cost of the process.
func BenchmarkOverhead(b *testing.B) {
	x, batch := oneRow(b)
	ctx := b.Context()
	b.Run("addsub", func(b *testing.B) {
		backendtest.Overhead(b, func() {
			if err := x.x.Execute(ctx, batch); err != nil {
				b.Fatal(err)
			}
			tensor.ReleaseAll(batch.Out)
		})
	})
}

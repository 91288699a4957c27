package wasm_test

import (
	"path/filepath"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/backendtest"
	"github.com/tutti-server/tutti/core/tensor"
)

// runExample returns a function that executes a batch of one row of the two-input model.
func runExample(tb testing.TB) (func(), *backends.Batch) {
	tb.Helper()
	x := instanceOf(tb, simple(tb, filepath.Join(exampleDir, "simple_wasm/1")))
	v := backendtest.Of(tensor.FP32, []int64{1, 4}, float32(1), 2, 3, 4)
	b := newBatch(tb, 2, []int{1}, v, v)
	ctx := tb.Context()
	return func() {
		if err := x.Execute(ctx, b); err != nil {
			tb.Fatal(err)
		}
		tensor.ReleaseAll(b.Out)
	}, b
}

// TestExecuteAllocatesNothing checks that an execution in the steady state allocates nothing.
func TestExecuteAllocatesNothing(t *testing.T) {
	run, _ := runExample(t)
	for range 20 {
		run()
	}
	if n := testing.AllocsPerRun(100, run); n != 0 {
		t.Errorf("%v allocations per batch, want none", n)
	}
}

// BenchmarkOverhead measures one execution of the two-input model. bench/peers/backends/wasm.py measures the same call in Wasmtime.
func BenchmarkOverhead(b *testing.B) {
	run, _ := runExample(b)
	b.Run("simple_wasm", func(b *testing.B) { backendtest.Overhead(b, run) })
}

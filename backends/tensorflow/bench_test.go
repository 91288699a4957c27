//go:build cgo

package tensorflow_test

import (
	"context"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/backendtest"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// TestAllocs checks that executions allocate nothing in the steady state.
func TestAllocs(t *testing.T) {
	m, err := load(t, example(t, "simple_tensorflow"))
	if err != nil {
		t.Fatal(err)
	}
	once, stop := simple(t, m)
	defer stop()
	if n := testing.AllocsPerRun(100, once); n > 0 {
		t.Errorf("%g allocations per execution", n)
	}
}

// simple returns an execution of the two-input model with one row, and a function that closes the instance.
func simple(tb testing.TB, m backends.Model) (once, stop func()) {
	tb.Helper()
	a := tensor.NewPool()
	x := instance(tb, m)
	b := &backends.Batch{Requests: make([]backends.Request, 1), Rows: 1, Out: make([]tensor.Tensor, 2), Allocator: a}
	b.In = []tensor.Tensor{
		backendtest.Of(tensor.FP32, []int64{1, 4}, float32(1), 2, 3, 4).Tensor(tb, a),
		backendtest.Of(tensor.Int64, []int64{1, 3}, int64(1), 2, 3).Tensor(tb, a),
	}
	once = func() {
		if err := x.Execute(context.Background(), b); err != nil {
			tb.Fatal(err)
		}
		tensor.ReleaseAll(b.Out)
	}
	once()
	return once, func() { tensor.ReleaseAll(b.In) }
}

// BenchmarkOverhead measures an execution of the two-input model, to compare with the framework's own call.
func BenchmarkOverhead(b *testing.B) {
	for _, name := range []string{"simple_tensorflow", "simple_graphdef"} {
		b.Run(name, func(b *testing.B) {
			s := example(b, name)
			one := &modelconfig.ModelParameter{StringValue: "1"}
			s.Config.Parameters = map[string]*modelconfig.ModelParameter{"TF_NUM_INTRA_THREADS": one, "TF_NUM_INTER_THREADS": one}
			m, err := load(b, s)
			if err != nil {
				b.Fatal(err)
			}
			once, stop := simple(b, m)
			defer stop()
			backendtest.Overhead(b, once)
		})
	}
}

//go:build cgo

package onnx

import (
	"strings"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
)

// runFill executes the model that fills n elements and adds them up.
func runFill(t *testing.T, m *model, n int64) error {
	t.Helper()
	x, err := m.NewInstance(t.Context(), tensor.Place{})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	pool := tensor.NewPool()
	in, err := tensor.New(pool, tensor.Int64, tensor.Of(1))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Release()
	*(*int64)(in.Pointer()) = n
	b := &backends.Batch{Rows: 1, In: []tensor.Tensor{in}, Out: make([]tensor.Tensor, 1), Allocator: pool}
	err = x.Execute(t.Context(), b)
	b.Out[0].Release()
	return err
}

// TestOutOfMemory checks that a model that requests too much memory fails its request, not the process.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	m, err := loadFile(t, openBackend(t, nil), "fill.onnx", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int64{1 << 46, 1 << 62, -1} {
		if err := runFill(t, m.(*model), n); err == nil || !strings.HasPrefix(err.Error(), "model 'm': onnx runtime error") {
			t.Errorf("%d elements: %v, want the runtime's error", n, err)
		}
	}
	if err := runFill(t, m.(*model), 10); err != nil {
		t.Errorf("the next run: %v", err)
	}
}

// TestBinding checks that outputs through a binding are equal whether the runtime or the backend allocates them.
func TestBinding(t *testing.T) {
	for name, unsure := range map[string]bool{"batch memory": false, "runtime memory": true} {
		x, b := loadMLP(t)
		if err := x.bindRuns(-1); err != nil {
			t.Fatal(err)
		}
		x.m.unsure.Store(unsure)
		for range 3 {
			for i := range 16 {
				*(*float32)(b.In[0].Buf.Pointer()) = float32(i)
				if err := x.Execute(t.Context(), b); err != nil {
					t.Fatal(err)
				}
				if got := *(*float32)(b.Out[0].Pointer()); got != float32(i) {
					t.Errorf("%s: %v, want %d", name, got, i)
				}
				b.Out[0].Release()
			}
		}
	}
}

// BenchmarkExecuteBinding measures runs with the instance's binding on the host, to compare with BenchmarkExecute.
func BenchmarkExecuteBinding(b *testing.B) {
	x, batch := loadMLP(b)
	if err := x.bindRuns(-1); err != nil {
		b.Fatal(err)
	}
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		if err := x.Execute(ctx, batch); err != nil {
			b.Fatal(err)
		}
		batch.Out[0].Release()
	}
}

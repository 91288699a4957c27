//go:build cgo

package tensorflow

import (
	"log/slog"
	"sync"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/internal/preparedtest"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

func openModel(t *testing.T, file string) *model {
	t.Helper()
	b, err := open(backends.Options{Config: map[string]string{bind.KeyLibrary: preparedtest.Runtime(t, "tensorflow")}})
	if err != nil {
		t.Fatal(err)
	}
	m, err := b.Load(t.Context(), backends.Settings{
		Model: file, Dir: "testdata", Log: slog.New(slog.DiscardHandler),
		Config: &modelconfig.ModelConfig{Name: file, DefaultModelFilename: file + ".savedmodel"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return m.(*model)
}

// TestLoans runs a model that retains its inputs and one that does not, on two instances each. It checks that the
// inputs of the first are copied after a while, those of the other never, and that all memory is released in the
// end.
func TestLoans(t *testing.T) {
	t.Parallel()
	for file, copies := range map[string]bool{"two": false, "keeper": true} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			m := openModel(t, file)
			alloc := tensortest.NewChecked(t, nil)
			var all sync.WaitGroup
			for range 2 {
				x, err := m.NewInstance(t.Context(), tensor.Place{})
				if err != nil {
					t.Fatal(err)
				}
				all.Go(func() {
					for range 500 {
						execute(t, x, alloc)
					}
					_ = x.Close()
				})
			}
			all.Wait()
			if m.copies.Load() != copies {
				t.Errorf("inputs are copied: %t, want %t", m.copies.Load(), copies)
			}
			_ = m.Close()
			if n := alloc.Held(); n != 0 {
				t.Errorf("%d buffers are held in the end", n)
			}
		})
	}
}

func execute(t *testing.T, x backends.Instance, alloc tensor.Allocator) {
	t.Helper()
	inst := x.(*instance)
	dims := make([]int64, len(inst.m.In[0].Shape))
	for i := range dims {
		dims[i] = 2
	}
	in, err := tensor.New(alloc, tensor.FP32, tensor.Of(dims...))
	if err != nil {
		t.Error(err)
		return
	}
	clear(in.Bytes())
	b := &backends.Batch{Requests: make([]backends.Request, 1), Rows: 1, In: []tensor.Tensor{in}, Out: make([]tensor.Tensor, len(inst.out)), Allocator: alloc}
	if err := x.Execute(t.Context(), b); err != nil {
		t.Error(err)
	}
	tensor.ReleaseAll(b.In)
	tensor.ReleaseAll(b.Out)
}

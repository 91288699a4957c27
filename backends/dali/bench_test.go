package dali_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/backendtest"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
)

const examples = "../../examples/backends/dali"

// BenchmarkOverhead measures a request of the two-input model, and one of a JPEG file that is decoded, resized and normalised.
// bench/peers/backends/dali.py measures DALI's own calls.
func BenchmarkOverhead(b *testing.B) {
	image, err := os.ReadFile(filepath.Join(examples, "jpeg_dali", "progressive.jpg"))
	if err != nil {
		b.Fatal(err)
	}
	numbers := fp32([]int64{1, 4}, 1, 2, 3, 4)
	overhead(b, "simple_dali", numbers, numbers)
	overhead(b, "jpeg_dali", uint8s([]int64{1, int64(len(image))}, image...))
}

// overhead benchmarks one request of an example.
func overhead(b *testing.B, model string, in ...backendtest.Value) {
	b.Helper()
	dir, err := filepath.Abs(filepath.Join(examples, model))
	if err != nil {
		b.Fatal(err)
	}
	s := settings(b, nil, "")
	s.Model, s.ModelDir, s.Dir = model, dir, filepath.Join(dir, "1")
	if s.Config, err = config.Load(dir); err != nil {
		b.Fatal(err)
	}
	m, err := open(b).Load(b.Context(), s)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = m.Close() })
	x, err := m.NewInstance(b.Context(), tensor.Place{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = x.Close() })
	batch := &backends.Batch{
		Requests: []backends.Request{{Ctx: b.Context(), Rows: 1}}, Rows: 1, Out: make([]tensor.Tensor, len(m.Signature().Outputs)), Allocator: s.Alloc,
	}
	for _, v := range in {
		batch.In = append(batch.In, v.Tensor(b, s.Alloc))
	}
	batch.Requests[0].In = batch.In // ragged inputs have the shapes of their requests
	b.Cleanup(func() { tensor.ReleaseAll(batch.In) })
	b.Run(model, func(b *testing.B) {
		backendtest.Overhead(b, func() {
			if err := x.Execute(b.Context(), batch); err != nil || batch.Requests[0].Err != nil {
				b.Fatal(err, batch.Requests[0].Err)
			}
			tensor.ReleaseAll(batch.Out)
		})
	})
}

package python_test

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/backendtest"
	"github.com/tutti-server/tutti/backends/python"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// BenchmarkRoundTrip measures one request of a model that adds one to its input, with 16 floats and with 1 MiB each
// way.
func BenchmarkRoundTrip(b *testing.B) {
	for name, n := range map[string]int{"16 floats": 16, "1 MiB": 1 << 18} {
		b.Run(name, func(b *testing.B) { roundTrip(b, n) })
	}
}

func roundTrip(b *testing.B, n int) {
	b.Helper()
	s := settings(b, "plus", &modelconfig.ModelConfig{
		Input:  []*modelconfig.ModelInput{input("IN", tensor.FP32, -1)},
		Output: []*modelconfig.ModelOutput{output("OUT", tensor.FP32, -1)},
	})
	in, err := tensor.New(s.Alloc, tensor.FP32, tensor.Of(int64(n)))
	if err != nil {
		b.Fatal(err)
	}
	clear(in.Bytes())
	measure(b, &s, []tensor.Tensor{in}, 1)
}

// measure executes one request repeatedly and reports percentiles.
func measure(b *testing.B, s *backends.Settings, in []tensor.Tensor, outputs int) {
	b.Helper()
	once := execution(b, s, in, outputs)
	times := make([]time.Duration, 0, 1<<16)
	b.ReportAllocs()
	for b.Loop() {
		began := time.Now()
		once()
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Nanoseconds())/1e3, "p50-us")
	b.ReportMetric(float64(times[len(times)*99/100].Nanoseconds())/1e3, "p99-us")
}

// execution loads a model and returns a function that executes one request. It takes ownership of in.
func execution(b *testing.B, s *backends.Settings, in []tensor.Tensor, outputs int) func() {
	b.Helper()
	opened, err := python.NewFactory().New(options(b))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = opened.Close() })
	m, err := opened.Load(b.Context(), *s)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = m.Close() })
	x, err := m.NewInstance(b.Context(), tensor.Place{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = x.Close() })
	b.Cleanup(func() { tensor.ReleaseAll(in) })
	batch := &backends.Batch{Rows: 1, In: in, Out: make([]tensor.Tensor, outputs), Allocator: s.Alloc}
	batch.Requests = []backends.Request{{Ctx: b.Context(), Rows: 1}}
	return func() {
		if err := x.Execute(b.Context(), batch); err != nil || batch.Requests[0].Err != nil {
			b.Fatal(err, batch.Requests[0].Err)
		}
		tensor.ReleaseAll(batch.Out)
	}
}

// BenchmarkOverhead measures a request of the two-input model. bench/peers/backends/python.py measures the same
// model in plain Python.
func BenchmarkOverhead(b *testing.B) {
	dir, err := filepath.Abs(filepath.Join("..", "..", "examples", "backends", "python", "simple_python"))
	if err != nil {
		b.Fatal(err)
	}
	cfg, err := config.Load(dir)
	if err != nil {
		b.Fatal(err)
	}
	s := settings(b, "simple_python", cfg)
	s.ModelDir, s.Dir = dir, filepath.Join(dir, "1")
	numbers, err := tensor.New(s.Alloc, tensor.FP32, tensor.Of(1, 16))
	if err != nil {
		b.Fatal(err)
	}
	indices, err := tensor.New(s.Alloc, tensor.Int64, tensor.Of(1, 2))
	if err != nil {
		b.Fatal(err)
	}
	copy(tensor.Slice[int64](&indices), []int64{3, 7})
	clear(numbers.Bytes())
	once := execution(b, &s, []tensor.Tensor{numbers, indices}, 2)
	b.Run("simple_python", func(b *testing.B) { backendtest.Overhead(b, once) })
}

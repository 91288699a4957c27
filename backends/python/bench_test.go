package python_test

import (
	"slices"
	"testing"
	"time"

	"tutti/backends"
	"tutti/backends/python"
	"tutti/core/tensor"
	"tutti/proto/modelconfig"
)

// BenchmarkRoundTrip measures executions of one request: numbers plus one, 16 floats and 1 MiB each way.
func BenchmarkRoundTrip(b *testing.B) {
	for name, n := range map[string]int{"16 floats": 16, "1 MiB": 1 << 18} {
		b.Run(name, func(b *testing.B) { roundTrip(b, n) })
	}
}

func roundTrip(b *testing.B, n int) {
	b.Helper()
	opened, err := python.NewFactory().New(options(b))
	if err != nil {
		b.Fatal(err)
	}
	defer opened.Close()
	s := settings(b, "plus", &modelconfig.ModelConfig{
		Input:  []*modelconfig.ModelInput{input("IN", tensor.FP32, -1)},
		Output: []*modelconfig.ModelOutput{output("OUT", tensor.FP32, -1)},
	})
	m, err := opened.Load(b.Context(), s)
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	x, err := m.NewInstance(b.Context(), tensor.Place{})
	if err != nil {
		b.Fatal(err)
	}
	defer x.Close()
	batch := &backends.Batch{Rows: 1, In: make([]tensor.Tensor, 1), Out: make([]tensor.Tensor, 1), Allocator: s.Alloc}
	batch.Reqs = []backends.Req{{Ctx: b.Context(), Rows: 1}}
	for i := range batch.In {
		if batch.In[i], err = tensor.New(s.Alloc, tensor.FP32, tensor.Of(int64(n))); err != nil {
			b.Fatal(err)
		}
		clear(batch.In[i].Bytes())
	}
	defer tensor.ReleaseAll(batch.In)
	times := make([]time.Duration, 0, b.N)
	b.ReportAllocs()
	for b.Loop() {
		began := time.Now()
		if err := x.Execute(b.Context(), batch); err != nil || batch.Reqs[0].Err != nil {
			b.Fatal(err, batch.Reqs[0].Err)
		}
		tensor.ReleaseAll(batch.Out)
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Nanoseconds())/1e3, "p50-us")
	b.ReportMetric(float64(times[len(times)*99/100].Nanoseconds())/1e3, "p99-us")
}

package normalize_test

import (
	"math"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/normalize"
	"github.com/tutti-server/tutti/steps/steptest"
)

func TestStep(t *testing.T) {
	t.Parallel()
	one := func(v ...float32) []steptest.Value {
		return []steptest.Value{steptest.F32([]int64{1, int64(len(v))}, v...)}
	}
	nan := float32(math.NaN())
	steptest.Run(t, normalize.NewFactory(),
		steptest.Case{Name: "rows", MaxBatch: 8, Tolerance: 1e-7, Requests: []steptest.Request{
			{Inputs: one(3, -4), Want: one(0.6, -0.8)},
			{Inputs: one(0, 0), Want: one(0, 0)},
			{Inputs: one(1e30, 0), Want: one(1, 0)},
			{Inputs: one(nan, 1), Want: one(nan, nan)},
			{Inputs: one(1, 1, 1, 1), Want: one(0.5, 0.5, 0.5, 0.5)},
		}},
		steptest.Case{
			Name: "half", MaxBatch: 2, Tolerance: 1e-7, Inputs: []config.Port{{Name: "embedding", DType: tensor.FP16}},
			Requests: []steptest.Request{{
				Inputs: []steptest.Value{{DType: tensor.FP16, Dims: []int64{1, 2}, Data: []byte("\x00\x42\x00\xc4")}}, Want: one(0.6, -0.8),
			}},
		},
		steptest.Case{Name: "no batch", Requests: []steptest.Request{{
			Inputs: []steptest.Value{steptest.F32([]int64{2}, 0, -2)}, Want: []steptest.Value{steptest.F32([]int64{2}, 0, -1)},
		}}},
	)
}

func BenchmarkPeer(b *testing.B) {
	const rows, width = 64, 384
	s, err := normalize.NewFactory().New(&steps.Settings{MaxBatch: rows})
	if err != nil {
		b.Fatal(err)
	}
	p := tensor.NewPool()
	in, err := tensor.New(p, tensor.FP32, tensor.Of(rows, width))
	if err != nil {
		b.Fatal(err)
	}
	for i, x := 0, tensor.Slice[float32](&in); i < len(x); i++ {
		x[i] = float32(i*7919%1009) / 200
	}
	batch := &backends.Batch{Rows: rows, In: []tensor.Tensor{in}, Out: make([]tensor.Tensor, 1), Allocator: p}
	steptest.Peer(b, "unit of 384", rows, func() {
		if err := s.Run(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
	})
}

// FuzzUnit normalizes arbitrary vectors of halves: finite ones get length 1, or stay 0.
func FuzzUnit(f *testing.F) {
	f.Add([]byte("\x00\x42\x00\xc4"))
	f.Add([]byte("\xff\xff\x01\x00"))
	ports := []config.Port{{Name: "embedding", DType: tensor.FP16}}
	s, err := normalize.NewFactory().New(&steps.Settings{MaxBatch: 1, Inputs: ports})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, n := tensor.NewPool(), int64(len(data)/2)
		in, err := tensor.New(p, tensor.FP16, tensor.Of(1, n))
		if err != nil {
			t.Fatal(err)
		}
		copy(in.Bytes(), data)
		b := &backends.Batch{Rows: 1, In: []tensor.Tensor{in}, Out: make([]tensor.Tensor, 1), Allocator: p}
		if err := s.Run(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		sum, finite := 0.0, true
		for _, v := range tensor.Slice[float32](&b.Out[0]) {
			sum += float64(v) * float64(v)
			finite = finite && v == v
		}
		if finite && sum != 0 && math.Abs(sum-1) > 1e-4 {
			t.Fatalf("the squares sum to %v", sum)
		}
	})
}

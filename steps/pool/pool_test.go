package pool_test

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/pool"
	"github.com/tutti-server/tutti/steps/steptest"
)

func TestStep(t *testing.T) {
	t.Parallel()
	f, i, nan := steptest.F32, steptest.I64, float32(math.NaN())
	in := func(h, m steptest.Value) []steptest.Value { return []steptest.Value{h, m} }
	want := func(v ...float32) []steptest.Value { return []steptest.Value{f([]int64{1, 2}, v...)} }
	hidden := f([]int64{1, 3, 2}, 3, -4, 1, 8, 100, -100)
	seen, none := i([]int64{1, 3}, 1, 1, 0), i([]int64{1, 3}, 0, 0, 0)
	second := i([]int64{1, 3}, 0, 5, 0)
	cases := []struct {
		name     string
		params   map[string]string
		requests []steptest.Request
	}{
		{"mean", nil, []steptest.Request{
			{Inputs: in(hidden, seen), Want: want(2, 2)},
			{Inputs: in(hidden, none), Want: want(0, 0)},
			{Inputs: in(hidden, second), Want: want(1, 8)},
			{Inputs: in(f([]int64{1, 3, 2}, nan, 1, 1, 1, nan, nan), seen), Want: want(nan, 1)},
		}},
		{"max", map[string]string{"mode": "max"}, []steptest.Request{
			{Inputs: in(hidden, seen), Want: want(3, 8)},
			{Inputs: in(hidden, none), Want: want(0, 0)},
			{Inputs: in(hidden, second), Want: want(1, 8)},
		}},
		{"cls", map[string]string{"mode": "cls", "normalize": "true"}, []steptest.Request{
			{Inputs: in(hidden, seen), Want: want(0.6, -0.8)},
			{Inputs: in(f([]int64{1, 3, 2}, 0, 0, 1, 1, 1, 1), seen), Want: want(0, 0)},
		}},
		{"unit mean", map[string]string{"normalize": "true"}, []steptest.Request{
			{Inputs: in(hidden, seen), Want: want(float32(math.Sqrt(0.5)), float32(math.Sqrt(0.5)))},
			{Inputs: in(hidden, none), Want: want(0, 0)},
		}},
	}
	var all []steptest.Case
	for _, c := range cases {
		all = append(all, steptest.Case{Name: c.name, Params: c.params, MaxBatch: 8, Requests: c.requests, Tolerance: 1e-6})
	}
	all = append(all,
		steptest.Case{Name: "no batch", Requests: []steptest.Request{{
			Inputs: in(f([]int64{2, 2}, 1, 2, 3, 4), i([]int64{2}, 1, 1)), Want: []steptest.Value{f([]int64{2}, 2, 3)},
		}}},
		steptest.Case{Name: "bad mode", Params: map[string]string{"mode": "sum"}, WantNewErr: "expected one of mean, cls, max, last, weighted_mean, mean_sqrt_len"},
	)
	steptest.Run(t, pool.NewFactory(), all...)
}

func TestMaskOfAnotherLength(t *testing.T) {
	t.Parallel()
	b := batch(t, 2, 3, 4)
	b.In[1].Release()
	var err error
	if b.In[1], err = tensor.New(tensor.NewPool(), tensor.Int64, tensor.Of(2, 2)); err != nil {
		t.Fatal(err)
	}
	if err = newStep(t).Run(t.Context(), b); err == nil {
		t.Error("a mask of 2 tokens was taken for 3 vectors")
	}
}

func newStep(tb testing.TB) steps.Step {
	tb.Helper()
	f := pool.NewFactory()
	params, err := f.Resolve(map[string]string{"normalize": "true"})
	if err != nil {
		tb.Fatal(err)
	}
	s, err := f.New(&steps.Settings{Model: "pooling", MaxBatch: 8, Params: params})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// batch is a batch of ones with all tokens seen.
func batch(tb testing.TB, rows, tokens, width int64) *backends.Batch {
	tb.Helper()
	p := tensor.NewPool()
	hidden, err := tensor.New(p, tensor.FP32, tensor.Of(rows, tokens, width))
	if err != nil {
		tb.Fatal(err)
	}
	mask, err := tensor.New(p, tensor.Int64, tensor.Of(rows, tokens))
	if err != nil {
		tb.Fatal(err)
	}
	for i := range tensor.Slice[float32](&hidden) {
		tensor.Slice[float32](&hidden)[i] = 1
	}
	for i := range tensor.Slice[int64](&mask) {
		tensor.Slice[int64](&mask)[i] = 1
	}
	return &backends.Batch{
		Requests: []backends.Request{{Meta: &infer.Meta{}, Ctx: context.Background(), Rows: int(rows)}},
		Rows:     int(rows), In: []tensor.Tensor{hidden, mask}, Out: make([]tensor.Tensor, 1), Allocator: p,
	}
}

// BenchmarkPeer pools texts of 128 tokens of width 384, as MiniLM gives.
func BenchmarkPeer(b *testing.B) {
	const rows, tokens, width = 16, 128, 384
	for _, mode := range []string{"mean", "max", "weighted_mean"} {
		params := map[string]string{"mode": mode, "normalize": "true"}
		s, err := pool.NewFactory().New(&steps.Settings{Model: "pooling", MaxBatch: rows, Params: params})
		if err != nil {
			b.Fatal(err)
		}
		in := batch(b, rows, tokens, width)
		steptest.Peer(b, strings.ReplaceAll(mode, "_", " ")+" of 128", rows, func() {
			if err := s.Run(b.Context(), in); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// FuzzMasks pools with arbitrary masks and vectors: finite input without a weight gives finite output.
func FuzzMasks(f *testing.F) {
	f.Add([]byte{1, 0, 1}, []byte("abcdefghijkl"), uint8(0))
	f.Add([]byte{0, 0}, []byte("\x00\x00\xff\xff"), uint8(4))
	modes := []string{"mean", "cls", "max", "last", "weighted_mean", "mean_sqrt_len"}
	f.Fuzz(func(t *testing.T, mask, values []byte, mode uint8) {
		params := map[string]string{"mode": modes[int(mode)%len(modes)], "normalize": "true"}
		s, err := pool.NewFactory().New(&steps.Settings{Model: "pooling", MaxBatch: 1, Params: params})
		if err != nil {
			t.Fatal(err)
		}
		tokens := len(mask)
		width := len(values) / max(tokens, 1)
		b := batch(t, 1, int64(tokens), int64(width))
		for i := range tokens {
			tensor.Slice[int64](&b.In[1])[i] = int64(int8(mask[i]))
		}
		for i := range tokens * width {
			tensor.Slice[float32](&b.In[0])[i] = float32(int8(values[i]))
		}
		if err := s.Run(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		for _, v := range tensor.Slice[float32](&b.Out[0]) {
			if !(v >= -1.001 && v <= 1.001) {
				t.Fatalf("a vector of length 1 has an element %v", v)
			}
		}
	})
}

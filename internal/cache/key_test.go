package cache_test

import (
	"testing"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/internal/cache"
)

// TestKey checks that the key changes with everything that may change a response, and with nothing else.
func TestKey(t *testing.T) {
	t.Parallel()
	alloc := tensortest.NewChecked(t, nil)
	text := func(s string, dims ...int64) tensor.Tensor {
		x, err := tensor.NewBytes(alloc, tensor.Of(dims...), len(s))
		if err != nil {
			t.Fatal(err)
		}
		copy(x.Bytes(), s)
		return x
	}
	hashers := cache.NewHashers(cache.Key{1})
	key := func(p *cache.Hashers, m infer.Meta, in ...tensor.Tensor) cache.Key {
		h := p.Get()
		defer p.Put(h)
		h.Meta(&m)
		for i := range in {
			h.Tensor(&in[i])
		}
		tensor.ReleaseAll(in)
		return h.Key()
	}
	fp := text("abcd", 1)
	fp.DType = tensor.FP32
	param := func(p infer.Param) infer.Meta { return infer.Meta{Params: infer.Params{p}} }
	seen := map[cache.Key]int{}
	for i, k := range []cache.Key{
		key(hashers, infer.Meta{}, text("abcd", 1)),
		key(cache.NewHashers(cache.Key{2}), infer.Meta{}, text("abcd", 1)),
		key(hashers, infer.Meta{}, text("abce", 1)),
		key(hashers, infer.Meta{}, text("abcd", 1, 1)),
		key(hashers, infer.Meta{}, text("abcd", 4)),
		key(hashers, infer.Meta{}, fp),
		key(hashers, infer.Meta{}, text("ab", 1), text("cd", 1)),
		key(hashers, infer.Meta{}, text("abc", 1), text("d", 1)),
		key(hashers, infer.Meta{}, tensor.Tensor{}, text("abcd", 1)),
		key(hashers, infer.Meta{}, text("abcd", 1), tensor.Tensor{}),
		key(hashers, infer.Meta{}, text(string(make([]byte, 5000)), 1)),
		key(hashers, infer.Meta{}, text(string(make([]byte, 5001)), 1)),
		key(hashers, param(infer.Param{Key: "a", Kind: infer.ParamInt, Int: 1}), text("abcd", 1)),
		key(hashers, param(infer.Param{Key: "a", Kind: infer.ParamInt, Int: 2}), text("abcd", 1)),
		key(hashers, param(infer.Param{Key: "b", Kind: infer.ParamInt, Int: 1}), text("abcd", 1)),
		key(hashers, param(infer.Param{Key: "a", Kind: infer.ParamDouble, Double: 1}), text("abcd", 1)),
		key(hashers, infer.Meta{Sequence: infer.Sequence{ID: 3}}, text("abcd", 1)),
	} {
		if j, ok := seen[k]; ok {
			t.Errorf("keys %d and %d are the same", j, i)
		}
		seen[k] = i
	}
	if _, ok := seen[key(hashers, infer.Meta{ID: "other", Priority: 2, Timeout: 9}, text("abcd", 1))]; !ok {
		t.Error("an id, a priority or a time-out changes the key")
	}
}

func BenchmarkKey(b *testing.B) {
	for name, n := range map[string]int{"16B": 16, "600kB": 600_000} {
		b.Run(name, func(b *testing.B) {
			x, err := tensor.NewBytes(tensor.NewPool(), tensor.Of(1), n)
			if err != nil {
				b.Fatal(err)
			}
			p, m := cache.NewHashers(cache.Key{}), infer.Meta{}
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				h := p.Get()
				h.Meta(&m)
				h.Tensor(&x)
				_ = h.Key()
				p.Put(h)
			}
		})
	}
}

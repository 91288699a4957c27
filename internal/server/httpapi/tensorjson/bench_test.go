package tensorjson_test

import (
	"testing"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/server/httpapi/jsonwire"
	"github.com/tutti-server/tutti/internal/server/httpapi/tensorjson"
)

const elements = 1 << 12

func filled(b *testing.B, d tensor.DType) *infer.Named {
	b.Helper()
	t, err := tensor.New(tensor.NewPool(), d, tensor.Of(elements))
	if err != nil {
		b.Fatal(err)
	}
	switch d {
	case tensor.FP32:
		for i, list := 0, tensor.Slice[float32](&t); i < len(list); i++ {
			list[i] = float32(i)*0.5 - 5
		}
	case tensor.Int32:
		for i, list := 0, tensor.Slice[int32](&t); i < len(list); i++ {
			list[i] = int32(i)*1001 - 1<<20
		}
	default:
		for i := range t.Bytes() {
			t.Bytes()[i] = byte(i)
		}
	}
	return &infer.Named{Name: "x", Tensor: t}
}

func BenchmarkTensor(b *testing.B) {
	for _, d := range []tensor.DType{tensor.FP32, tensor.Int32, tensor.Uint8} {
		in := filled(b, d)
		text, err := tensorjson.AppendData(nil, in)
		if err != nil {
			b.Fatal(err)
		}
		b.Run("print/"+d.String(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				text, _ = tensorjson.AppendData(text[:0], in)
			}
		})
		list := append(append([]byte{'['}, text...), ']')
		b.Run("fill/"+d.String(), func(b *testing.B) {
			b.ReportAllocs()
			var p jsonwire.Parser
			for b.Loop() {
				p.Begin(list)
				if err := tensorjson.Fill(&p, &in.Tensor, "x", false); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

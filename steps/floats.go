package steps

import (
	"math"
	"slices"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
)

// FloatPort returns an input that is FP32 unless config.pbtxt declares it FP16.
func (s *Settings) FloatPort(name string, dims ...int64) config.Port {
	p := config.Port{Name: name, DType: tensor.FP32, Dims: tensor.Of(dims...)}
	declared := func(in config.Port) bool { return in.Name == name && in.DType == tensor.FP16 }
	if slices.ContainsFunc(s.Inputs, declared) {
		p.DType = tensor.FP16
	}
	return p
}

// Floats returns t's elements, FP32 or FP16, from the one at first on, n of them. FP32
// is borrowed from t; FP16 is converted into scratch, which is grown to hold it and
// returned for the next call.
//
// hot: no allocation once scratch has grown.
func Floats(scratch []float32, t *tensor.Tensor, first, n int) (values, grown []float32) {
	if t.DType != tensor.FP16 {
		return tensor.Slice[float32](t)[first : first+n], scratch
	}
	scratch = slices.Grow(scratch[:0], n)[:n]
	for i, h := range tensor.Slice[uint16](t)[first : first+n] {
		scratch[i] = half(h)
	}
	return scratch, scratch
}

// half returns what an IEEE 754 half of these bits is worth: a sign, 5 bits of exponent
// and 10 of fraction.
func half(h uint16) float32 {
	const (
		rebias = (127 - 15) << 23
		// subnormal is 2^-14 as bits: what the fraction of a half without exponent adds to.
		subnormal = (127 - 14) << 23
	)
	sign, rest := uint32(h&0x8000)<<16, uint32(h&0x7fff)<<13
	switch exponent := h & 0x7c00; exponent {
	case 0:
		f := math.Float32frombits(rest+subnormal) - math.Float32frombits(subnormal)
		return math.Float32frombits(sign | math.Float32bits(f))
	case 0x7c00:
		return math.Float32frombits(sign | 0x7f800000 | rest)
	default:
		return math.Float32frombits(sign | (rest + rebias))
	}
}

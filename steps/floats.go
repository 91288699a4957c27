package steps

import (
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

// Floats returns n elements of t from index first on. The type of t must be FP32 or FP16. FP32
// elements are borrowed from t. FP16 elements are converted into scratch, which is grown if
// needed; grown is the scratch for the next call.
//
// hot: no allocation once scratch has grown.
func Floats(scratch []float32, t *tensor.Tensor, first, n int) (values, grown []float32) {
	if t.DType != tensor.FP16 {
		return tensor.Slice[float32](t)[first : first+n], scratch
	}
	scratch = slices.Grow(scratch[:0], n)[:n]
	for i, h := range tensor.Slice[uint16](t)[first : first+n] {
		scratch[i] = tensor.FP16ToFloat32(h)
	}
	return scratch, scratch
}

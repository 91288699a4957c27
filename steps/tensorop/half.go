package tensorop

import (
	"math"

	"github.com/tutti-server/tutti/core/tensor"
)

// narrowed rounds f to float32 "to odd": the last bit is 1 if bits are cut off. Rounding the result to
// FP16 or BF16 then gives the same as rounding f.
func narrowed(f float64) float32 {
	n := float32(f)
	wide, b := float64(n), math.Float32bits(n)
	switch {
	case wide == f || math.IsNaN(f):
		return n
	case math.Abs(wide) > math.Abs(f):
		return math.Float32frombits((b - 1) | 1)
	default:
		return math.Float32frombits(b | 1)
	}
}

// widen converts FP16 or BF16 elements to float32.
func widen(dst []float32, src []uint16, d tensor.DType) {
	dst = dst[:len(src)]
	if d == tensor.BF16 {
		for i, h := range src {
			dst[i] = tensor.BF16ToFloat32(h)
		}
		return
	}
	for i, h := range src {
		dst[i] = tensor.FP16ToFloat32(h)
	}
}

// shorten rounds float32 elements to FP16 or BF16.
func shorten(dst []uint16, src []float32, d tensor.DType) {
	dst = dst[:len(src)]
	if d == tensor.BF16 {
		for i, f := range src {
			dst[i] = tensor.Float32ToBF16(f)
		}
		return
	}
	for i, f := range src {
		dst[i] = tensor.Float32ToFP16(f)
	}
}

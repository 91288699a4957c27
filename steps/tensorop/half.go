package tensorop

import (
	"math"

	"github.com/tutti-server/tutti/core/tensor"
)

// narrowed returns f as a float32 that rounds to a shorter type as f itself does: what
// is cut off shows in the last bit.
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

// widen writes FP16 or BF16 elements as float32.
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

// shorten writes float32 elements as FP16 or BF16.
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

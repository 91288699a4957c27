package tensorop

import (
	"math"

	"github.com/tutti-server/tutti/core/tensor"
)

// fromFP16 returns the value of an IEEE 754 half.
func fromFP16(h uint16) float32 {
	sign, rest := uint32(h>>15)<<31, uint32(h&0x7fff)
	switch {
	case rest >= 0x7c00: // infinity or not a number
		return math.Float32frombits(sign | 0x7f800000 | rest<<13&0x7fffff)
	case rest >= 0x400:
		return math.Float32frombits(sign | rest<<13 + (127-15)<<23)
	default: // 2^-24 each
		return math.Float32frombits(sign | math.Float32bits(float32(rest)*0x1p-24))
	}
}

// toFP16 rounds to the nearest half, ties to even.
func toFP16(f float32) uint16 {
	b := math.Float32bits(f)
	sign, rest := uint16(b>>16)&0x8000, b&0x7fffffff
	switch {
	case rest > 0x7f800000:
		return sign | 0x7e00 | uint16(rest>>13)&0x3ff
	case rest >= 0x477ff000: // rounds to 65536 or more
		return sign | 0x7c00
	case rest >= 0x38800000:
		return sign | uint16((rest-(127-15)<<23+0xfff+rest>>13&1)>>13)
	default: // adding 0.5 leaves multiples of 2^-24 in the fraction
		return sign | uint16(math.Float32bits(math.Float32frombits(rest)+0.5)-0x3f000000)
	}
}

func fromBF16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// toBF16 rounds to the nearest, ties to even.
func toBF16(f float32) uint16 {
	b := math.Float32bits(f)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

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
			dst[i] = fromBF16(h)
		}
		return
	}
	for i, h := range src {
		dst[i] = fromFP16(h)
	}
}

// shorten writes float32 elements as FP16 or BF16.
func shorten(dst []uint16, src []float32, d tensor.DType) {
	dst = dst[:len(src)]
	if d == tensor.BF16 {
		for i, f := range src {
			dst[i] = toBF16(f)
		}
		return
	}
	for i, f := range src {
		dst[i] = toFP16(f)
	}
}

// isHalf tells the types that are computed with as float32.
func isHalf(d tensor.DType) bool { return d == tensor.FP16 || d == tensor.BF16 }

package dataset

import (
	"encoding/hex"
	"math"
	"strconv"
)

// appendFloat appends the shortest decimal that is read back as v, a float of the given bits: 0.1 for the FP32 0.1. What
// is not finite is NaN, Infinity or -Infinity, as in the JSON of inference requests.
func appendFloat(b []byte, v float64, bits int) []byte {
	switch a := math.Abs(v); {
	case math.IsNaN(v):
		return append(b, "NaN"...)
	case math.IsInf(v, 1):
		return append(b, "Infinity"...)
	case math.IsInf(v, -1):
		return append(b, "-Infinity"...)
	case a == 0 || 1e-6 <= a && a < 1e21:
		return strconv.AppendFloat(b, v, 'f', -1, bits)
	default:
		return strconv.AppendFloat(b, v, 'e', -1, bits)
	}
}

func hexOf(b []byte) string { return hex.EncodeToString(b) }

// powers are the powers of ten that decimal divides by. Each is exact.
var powers = [...]float64{1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15}

// decimal reads the valid JSON number at b[i] and returns the index behind it. It returns i for a number that it cannot round
// as strconv.ParseFloat does: one with an exponent or more than 15 digits, or too close to the middle of two FP32.
//
// With 15 digits the quotient of digits and power is the FP64 next to the number. The FP32 next to that is the one next to the
// number, unless the FP64 is in the very middle of two FP32: then the number may be on either side.
func decimal(b []byte, i int) (v float32, end int) {
	n := i
	neg := b[n] == '-'
	if neg {
		n++
	}
	var digits uint64
	from, point := n, -1
	for ; n < len(b); n++ {
		switch c := b[n]; {
		case c-'0' <= 9:
			digits = 10*digits + uint64(c-'0')
			continue
		case c == '.' && point < 0:
			point = n
			continue
		}
		break
	}
	count, behind := n-from, 0
	if point >= 0 {
		count--
		behind = n - point - 1
	}
	if count == 0 || count > 15 || n < len(b) && (b[n]|0x20 == 'e' || b[n] == 'I') {
		return 0, i
	}
	d := float64(digits) / powers[behind]
	const lost, middle, least = 1<<29 - 1, 1 << 28, 0x1p-126
	if math.Float64bits(d)&lost == middle || d < least && digits != 0 {
		return 0, i
	}
	if neg {
		d = -d
	}
	return float32(d), n
}

package tensor

import "math"

// FP16ToFloat32 converts IEEE 754 binary16: a sign, 5 bits of exponent and 10 of fraction.
// It is exact. For example, 0x3c00 is 1 and 0xc000 is -2. A NaN keeps its payload.
func FP16ToFloat32(h uint16) float32 {
	const rebias = (127 - 15) << 23
	sign, rest := uint32(h&0x8000)<<16, uint32(h&0x7fff)
	switch {
	case rest >= 0x7c00: // an infinity or a NaN
		return math.Float32frombits(sign | 0x7f800000 | rest<<13)
	case rest >= 0x400:
		return math.Float32frombits(sign | (rest<<13 + rebias))
	default: // subnormal: multiples of 2^-24
		return math.Float32frombits(sign | math.Float32bits(float32(rest)*0x1p-24))
	}
}

// Float32ToFP16 rounds f to the nearest binary16, ties to even, as numpy.float16 does. What
// is 65520 or larger becomes an infinity. A NaN stays one, with the upper bits of its payload.
func Float32ToFP16(f float32) uint16 {
	bits := math.Float32bits(f)
	sign, rest := uint16(bits>>16)&0x8000, bits&0x7fffffff
	switch {
	case rest > 0x7f800000:
		return sign | nanFP16(rest)
	case rest >= 0x477ff000: // rounds to 65536 or more
		return sign | 0x7c00
	case rest >= 0x38800000:
		return sign | uint16((rest-(127-15)<<23+0xfff+rest>>13&1)>>13)
	default: // adding 0.5 leaves multiples of 2^-24 in the fraction
		return sign | uint16(math.Float32bits(math.Float32frombits(rest)+0.5)-0x3f000000)
	}
}

// nanFP16 shortens the payload of a NaN, which must not become that of an infinity.
func nanFP16(bits uint32) uint16 { return 0x7c00 | max(uint16(bits>>13)&0x3ff, 1) }

// BF16ToFloat32 converts bfloat16, the upper half of a float32. It is exact.
func BF16ToFloat32(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// Float32ToBF16 rounds f to the nearest bfloat16, ties to even. A NaN stays one.
func Float32ToBF16(f float32) uint16 {
	bits := math.Float32bits(f)
	if bits&0x7fffffff > 0x7f800000 {
		return uint16(bits>>16) | 0x40
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

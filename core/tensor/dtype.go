package tensor

import "math"

// DType is the type of a tensor's elements. The numbers are those of DataType in
// config.pbtxt, so that one conversion serves both.
type DType uint8

// The element types of the KServe v2 protocol.
const (
	Invalid DType = iota
	Bool
	Uint8
	Uint16
	Uint32
	Uint64
	Int8
	Int16
	Int32
	Int64
	FP16
	FP32
	FP64
	Bytes
	BF16
	numDTypes
)

var dtypes = [numDTypes]struct {
	wire, config string
	size         int
}{
	Invalid: {"<invalid>", "TYPE_INVALID", 0},
	Bool:    {"BOOL", "TYPE_BOOL", 1},
	Uint8:   {"UINT8", "TYPE_UINT8", 1},
	Uint16:  {"UINT16", "TYPE_UINT16", 2},
	Uint32:  {"UINT32", "TYPE_UINT32", 4},
	Uint64:  {"UINT64", "TYPE_UINT64", 8},
	Int8:    {"INT8", "TYPE_INT8", 1},
	Int16:   {"INT16", "TYPE_INT16", 2},
	Int32:   {"INT32", "TYPE_INT32", 4},
	Int64:   {"INT64", "TYPE_INT64", 8},
	FP16:    {"FP16", "TYPE_FP16", 2},
	FP32:    {"FP32", "TYPE_FP32", 4},
	FP64:    {"FP64", "TYPE_FP64", 8},
	Bytes:   {"BYTES", "TYPE_STRING", 0},
	BF16:    {"BF16", "TYPE_BF16", 2},
}

// ParseDType returns the type the wire calls name ("FP32", "BYTES"), or Invalid.
func ParseDType(name string) DType {
	for d := Bool; d < numDTypes; d++ {
		if dtypes[d].wire == name {
			return d
		}
	}
	return Invalid
}

// String returns the wire's name of d ("FP32", "BYTES").
func (d DType) String() string {
	return dtypes[d.known()].wire
}

// known returns d, or Invalid for a number that is no type.
func (d DType) known() DType {
	if d < numDTypes {
		return d
	}
	return Invalid
}

// ConfigName returns the name of d in config.pbtxt ("TYPE_FP32", "TYPE_STRING").
func (d DType) ConfigName() string { return dtypes[d.known()].config }

// Size returns the bytes of one element, 0 for Bytes and Invalid.
func (d DType) Size() int { return dtypes[d.known()].size }

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

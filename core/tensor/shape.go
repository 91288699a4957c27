package tensor

import (
	"math"
	"math/bits"
	"slices"
	"strconv"
)

// inlineRank is how many dimensions a Shape holds without allocating.
const inlineRank = 8

// Shape is a list of dimensions, outermost first. It is a value: copying one copies the dimensions, and up to eight of
// them allocate nothing. In a declaration -1 is any extent; in a tensor every extent is at least 0. For example, Of(-1,
// 16) declares batches of 16 elements each.
type Shape struct {
	rank  int
	dims  [inlineRank]int64
	spill []int64 // all dimensions when rank > inlineRank; never written after Of
}

// Of returns the shape with the given dimensions, which are copied.
func Of(dims ...int64) Shape {
	s := Shape{rank: len(dims)}
	if s.rank > inlineRank {
		s.spill = append([]int64(nil), dims...)
		return s
	}
	copy(s.dims[:], dims)
	return s
}

// Rank returns the number of dimensions.
func (s *Shape) Rank() int { return s.rank }

// Dim returns dimension i.
func (s *Shape) Dim(i int) int64 { return s.Dims()[i] }

// Dims returns the dimensions, borrowed. They are valid while s is, and must not be changed.
func (s *Shape) Dims() []int64 {
	if s.rank > inlineRank {
		return s.spill
	}
	return s.dims[:s.rank]
}

// SetDim changes dimension i of s. Copies of s keep their dimensions.
func (s *Shape) SetDim(i int, n int64) {
	if s.rank > inlineRank {
		s.spill = append([]int64(nil), s.spill...)
	}
	s.Dims()[i] = n
}

// Equal reports whether both shapes have the same dimensions.
func (s Shape) Equal(o Shape) bool { return slices.Equal(s.Dims(), o.Dims()) }

// Matches reports whether s fits the declaration want, in which -1 fits any extent.
func (s Shape) Matches(want Shape) bool {
	if s.rank != want.rank {
		return false
	}
	wd := want.Dims()
	for i, d := range s.Dims() {
		if wd[i] != -1 && d != wd[i] {
			return false
		}
	}
	return true
}

// Elements returns the number of elements: 1 for rank 0, and -1 when a dimension
// is negative or the product does not fit an int64.
func (s Shape) Elements() int64 {
	n, overflow := uint64(1), false
	for _, d := range s.Dims() {
		if d < 0 {
			return -1
		}
		hi, lo := bits.Mul64(n, uint64(d))
		if hi != 0 || lo > math.MaxInt64 {
			overflow = true // unless a later extent is 0
			lo = 1
		}
		n = lo
	}
	if overflow && n != 0 {
		return -1
	}
	return int64(n)
}

// Prepend returns s with n put before its dimensions.
func (s Shape) Prepend(n int64) Shape {
	if s.rank < inlineRank {
		r := Shape{rank: s.rank + 1}
		r.dims[0] = n
		copy(r.dims[1:], s.dims[:s.rank])
		return r
	}
	return Of(append([]int64{n}, s.Dims()...)...)
}

// Tail returns s without its first dimension; s must have one.
func (s Shape) Tail() Shape {
	if s.rank > inlineRank {
		return Of(s.spill[1:]...)
	}
	r := Shape{rank: s.rank - 1}
	copy(r.dims[:], s.dims[1:s.rank])
	return r
}

// String returns the shape as error texts print it: [-1,16].
func (s Shape) String() string { return string(s.append(nil)) }

func (s *Shape) append(b []byte) []byte {
	b = append(b, '[')
	for i, d := range s.Dims() {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, d, 10)
	}
	return append(b, ']')
}

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
func (d DType) String() string { return dtypes[d.known()].wire }

// known returns d, or Invalid for a number that is no type.
func (d DType) known() DType {
	if d < numDTypes {
		return d
	}
	return Invalid
}

// ConfigName returns the name of d in config.pbtxt ("TYPE_FP32", "TYPE_STRING").
func (d DType) ConfigName() string { return dtypes[d.known()].config }

// IsFloat reports whether elements are floating-point numbers.
func (d DType) IsFloat() bool { return d == FP16 || d == FP32 || d == FP64 || d == BF16 }

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
		return sign | 0x7c00 | max(uint16(rest>>13)&0x3ff, 1) // the payload must not become that of an infinity
	case rest >= 0x477ff000: // rounds to 65536 or more
		return sign | 0x7c00
	case rest >= 0x38800000:
		return sign | uint16((rest-(127-15)<<23+0xfff+rest>>13&1)>>13)
	default: // adding 0.5 leaves multiples of 2^-24 in the fraction
		return sign | uint16(math.Float32bits(math.Float32frombits(rest)+0.5)-0x3f000000)
	}
}

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

package tensor

import (
	"math"
	"math/bits"
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
func (s Shape) Equal(o Shape) bool {
	if s.rank != o.rank {
		return false
	}
	od := o.Dims()
	for i, d := range s.Dims() {
		if d != od[i] {
			return false
		}
	}
	return true
}

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

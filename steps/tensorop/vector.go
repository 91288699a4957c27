package tensorop

import (
	"math"

	"github.com/tutti-server/tutti/core/tensor"
)

// lanes is the number of float32 elements of a vector. The functions below process a prefix of their slices and return
// its length: full vectors of FP32, 0 for other types and on processors without AVX2, FMA and BMI2.
const lanes = 8

// whole returns how many of n elements fill whole vectors.
func whole(n int) int {
	if !vectors {
		return 0
	}
	return n &^ (lanes - 1)
}

// hasVectors reports whether sums of T have vector code.
func hasVectors[T tensor.Number]() bool {
	_, ok := any([]T(nil)).([]float32)
	return ok && vectors
}

// vectorOps are the operations that have vector code; nil for the others.
var vectorOps = [xor + 1]func(dst, a, b *float32, n int){
	add: addVector, subtract: subtractVector, multiply: multiplyVector, divide: divideVector,
}

// vectorTests are the comparisons that have vector code.
var vectorTests = [xor + 1]func(dst *byte, a, b *float32, n int){
	equal: equalVector, notEqual: notEqualVector, less: lessVector, lessEqual: lessEqualVector,
}

func computeVector[T tensor.Number](c code, dst, one, two []T) int {
	to, ok := any(dst).([]float32)
	n := whole(len(dst))
	if !ok || n == 0 || vectorOps[c] == nil {
		return 0
	}
	a, b := any(one).([]float32), any(two).([]float32) //nolint:errcheck,forcetypeassert // the type of dst
	_, _ = a[n-1], b[n-1]
	vectorOps[c](&to[0], &a[0], &b[0], n)
	return n
}

func compareVector[T tensor.Number](c code, dst []byte, one, two []T) int {
	a, ok := any(one).([]float32)
	n := whole(len(dst))
	if !ok || n == 0 || vectorTests[c] == nil {
		return 0
	}
	b := any(two).([]float32) //nolint:errcheck,forcetypeassert // the type of one
	_, _ = a[n-1], b[n-1]
	vectorTests[c](&dst[0], &a[0], &b[0], n)
	return n
}

// castVector converts uint8 to float32, and float32 to int32 where all elements fit.
func castVector[D, S tensor.Number](dst []D, src []S) int {
	n := whole(len(src))
	if n == 0 {
		return 0
	}
	_ = dst[n-1]
	switch from := any(src).(type) {
	case []uint8:
		if to, ok := any(dst).([]float32); ok {
			bytesVector(&to[0], &from[0], n)
			return n
		}
	case []float32:
		if to, ok := any(dst).([]int32); ok && truncateVector(&to[0], &from[0], n) {
			return n
		}
	}
	return 0
}

func clipFast[T tensor.Number](dst, src []T, low, high T) int {
	from, ok := any(src).([]float32)
	n := whole(len(src))
	if !ok || n == 0 {
		return 0
	}
	to := any(dst).([]float32) //nolint:errcheck,forcetypeassert // the type of src
	_ = to[n-1]
	clipVector(&to[0], &from[0], n, float32(low), float32(high))
	return n
}

// greatestFast returns the greatest element of a prefix of line, and the length of that
// prefix: 0 where it holds a NaN. line must not be empty.
func greatestFast[T tensor.Number](line []T) (T, int) {
	from, ok := any(line).([]float32)
	n := whole(len(line))
	var most [lanes]float32
	if !ok || n == 0 || !greatestVector(&from[0], n, &most) {
		return line[0], 0
	}
	best := most[0]
	for _, v := range most {
		if v > best {
			best = v
		}
	}
	return T(best), n
}

// firstFast returns the index of the first v among the first n elements.
func firstFast[T tensor.Number](line []T, n int, v T) int {
	from, ok := any(line[:n]).([]float32)
	if !ok || n == 0 {
		return 0
	}
	return firstVector(&from[0], n, float32(v))
}

// exponentials writes e to the power of each element. Vectors with an element beyond 87 in
// size are computed one by one.
func exponentials[T tensor.Number](dst, src []T) {
	for len(src) > 0 {
		done := 0
		if from, ok := any(src).([]float32); ok && whole(len(src)) > 0 {
			to := any(dst).([]float32) //nolint:errcheck,forcetypeassert // the type of src
			done = expVector(&to[0], &from[0], whole(len(src)))
		}
		end := min(len(src), done+lanes)
		for i, v := range src[done:end] {
			dst[done+i] = T(math.Exp(float64(v)))
		}
		dst, src = dst[end:], src[end:]
	}
}

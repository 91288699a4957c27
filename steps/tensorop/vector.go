package tensorop

import (
	"math"

	"github.com/tutti-server/tutti/core/tensor"
)

// lanes is how many float32 numbers go at a time. The functions here do as many of a
// chunk as they can and return how many those are; nothing where types are others.
const lanes = 8

// whole returns how many of n elements go in full vectors.
func whole(n int) int {
	if !vectors {
		return 0
	}
	return n &^ (lanes - 1)
}

// fast tells the type that goes in vectors.
func fast[T tensor.Number]() bool {
	var none []T
	_, ok := any(none).([]float32)
	return ok && vectors
}

func computeVector[T tensor.Number](c code, dst, one, two []T) int {
	to, ok := any(dst).([]float32)
	n := whole(len(dst))
	if !ok || n == 0 {
		return 0
	}
	a, b := any(one).([]float32), any(two).([]float32) //nolint:errcheck,forcetypeassert // the type of dst
	_, _ = a[n-1], b[n-1]
	switch c {
	case add:
		addVector(&to[0], &a[0], &b[0], n)
	case subtract:
		subtractVector(&to[0], &a[0], &b[0], n)
	case multiply:
		multiplyVector(&to[0], &a[0], &b[0], n)
	case divide:
		divideVector(&to[0], &a[0], &b[0], n)
	default:
		return 0
	}
	return n
}

func compareVector[T tensor.Number](c code, dst []byte, one, two []T) int {
	a, ok := any(one).([]float32)
	n := whole(len(dst))
	if !ok || n == 0 {
		return 0
	}
	b := any(two).([]float32) //nolint:errcheck,forcetypeassert // the type of one
	_, _ = a[n-1], b[n-1]
	switch c {
	case equal:
		equalVector(&dst[0], &a[0], &b[0], n)
	case notEqual:
		notEqualVector(&dst[0], &a[0], &b[0], n)
	case less:
		lessVector(&dst[0], &a[0], &b[0], n)
	case lessEqual:
		lessEqualVector(&dst[0], &a[0], &b[0], n)
	default:
		return 0
	}
	return n
}

// castVector is uint8 to float32, and float32 to int32 where all fit.
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

func clipped[T tensor.Number](dst, src []T, low, high T) int {
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

// greatestFast returns the greatest of a part of a line, and how long the part is: none
// of it is anything but a number.
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

// firstFast returns where v is first among n elements of a line.
func firstFast[T tensor.Number](line []T, n int, v T) int {
	from, ok := any(line[:n]).([]float32)
	if !ok || n == 0 {
		return 0
	}
	return firstVector(&from[0], n, float32(v))
}

// exponentials writes what the numbers are as exponents of e.
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

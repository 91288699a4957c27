package tensorop

import "golang.org/x/sys/cpu"

// vectors reports whether the processor has the instructions of the functions below. Their
// n is a multiple of 8, except where said.
var vectors = cpu.X86.HasAVX2 && cpu.X86.HasFMA && cpu.X86.HasBMI2

//go:noescape
func addVector(dst, a, b *float32, n int)

//go:noescape
func subtractVector(dst, a, b *float32, n int)

//go:noescape
func multiplyVector(dst, a, b *float32, n int)

//go:noescape
func divideVector(dst, a, b *float32, n int)

//go:noescape
func equalVector(dst *byte, a, b *float32, n int)

//go:noescape
func notEqualVector(dst *byte, a, b *float32, n int)

//go:noescape
func lessVector(dst *byte, a, b *float32, n int)

//go:noescape
func lessEqualVector(dst *byte, a, b *float32, n int)

//go:noescape
func bytesVector(dst *float32, src *uint8, n int)

// truncateVector reports whether all elements fit: the processor gives the least number for those that do not.
//
//go:noescape
func truncateVector(dst *int32, src *float32, n int) (fit bool)

// clipVector leaves NaN as it is.
//
//go:noescape
func clipVector(dst, src *float32, n int, low, high float32)

// greatestVector writes the greatest of each lane, every eighth element, and reports whether none is NaN.
//
//go:noescape
func greatestVector(src *float32, n int, lanes *[8]float32) (numbers bool)

// firstVector returns the index of the first element equal to v, or n.
//
//go:noescape
func firstVector(src *float32, n int, v float32) int

// expVector stops before the first vector with an element beyond 87 in size, and returns
// the number of elements done. The polynomial is Cephes' expf.
//
//go:noescape
func expVector(dst, src *float32, n int) int

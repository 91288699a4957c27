package tensorop

import "golang.org/x/sys/cpu"

// vectors tells whether the processor has what the functions below are made of.
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

// truncateVector reports whether no result is the least number, which stands for all
// that do not fit.
//
//go:noescape
func truncateVector(dst *int32, src *float32, n int) (fit bool)

// clipVector keeps what is no number.
//
//go:noescape
func clipVector(dst, src *float32, n int, low, high float32)

// greatestVector gives the greatest of every eighth element, and whether all are numbers.
//
//go:noescape
func greatestVector(src *float32, n int, lanes *[8]float32) (numbers bool)

// firstVector returns the index of the first element that is v, n if none is.
//
//go:noescape
func firstVector(src *float32, n int, v float32) int

// expVector stops before eight elements of which one is beyond 87, and returns where.
//
//go:noescape
func expVector(dst, src *float32, n int) int

//go:build !amd64 || !cgo

package kernels

// Fast tells whether Taps, Add and Round may be used: they have no twin in Go here.
func Fast() bool { return false }

// Inverse writes the samples of a row of blocks, 64 coefficients each: see the other
// build's.
func Inverse(dst []byte, stride int, coefs []int16) { inverse(dst, stride, coefs) }

// Reduced is described where it is native.
func Reduced(dst []byte, stride, size int, coefs []int16) { reduced(dst, stride, size, coefs) }

// Color is described where it is native.
func Color(dst, luma, cb, cr []byte) { color(dst, luma, cb, cr) }

// Widen is described where it is native.
func Widen(dst, src []byte) { widen(dst, src) }

// Lengthen is described where it is native.
func Lengthen(dst, near, far []byte, bias int) { lengthen(dst, near, far, bias) }

// Stretch is described where it is native.
func Stretch(dst, near, far []byte) { stretch(dst, near, far) }

// Along is described where it is native.
func Along(a, b, rowA, rowB []byte, t *Taps) {
	along(a, rowA, t)
	along(b, rowB, t)
}

// Add is described where it is native.
func Add(sum []int32, a, b []byte, ka, kb int32) { add(sum, a, b, ka, kb) }

// Round is described where it is native.
func Round(dst []byte, sum []int32) { rounded(dst, sum) }

// Lerp is described where it is native.
func Lerp(dst []int16, src []byte, at []int32, weights []int16) { lerp(dst, src, at, weights) }

// Blend is described where it is native.
func Blend(dst []byte, a, b []int16, wa, wb int16) { blend(dst, a, b, wa, wb) }

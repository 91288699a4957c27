//go:build !amd64 || !cgo

package kernels

// Fast is false: the loops of package resize are faster than Along, Add and Round.
func Fast() bool { return false }

// Inverse transforms a row of blocks of 64 coefficients. native.go has the contract of each function.
func Inverse(dst []byte, stride int, coefs []int16) { inverse(dst, stride, coefs) }

// Reduced is described in native.go.
func Reduced(dst []byte, stride, size int, coefs []int16) { reduced(dst, stride, size, coefs) }

// Color is described in native.go.
func Color(dst, luma, cb, cr []byte) { color(dst, luma, cb, cr) }

// Widen is described in native.go.
func Widen(dst, src []byte) { widen(dst, src) }

// Lengthen is described in native.go.
func Lengthen(dst, near, far []byte, bias int) { lengthen(dst, near, far, bias) }

// Stretch is described in native.go.
func Stretch(dst, near, far []byte) { stretch(dst, near, far) }

// Along is described in native.go.
func Along(a, b, rowA, rowB []byte, t *Taps) {
	along(a, rowA, t)
	along(b, rowB, t)
}

// Add is described in native.go.
func Add(sum []int32, a, b []byte, ka, kb int32) { add(sum, a, b, ka, kb) }

// Round is described in native.go.
func Round(dst []byte, sum []int32) { rounded(dst, sum) }

// Lerp is described in native.go.
func Lerp(dst []int16, src []byte, at []int32, weights []int16) { lerp(dst, src, at, weights) }

// Blend is described in native.go.
func Blend(dst []byte, a, b []int16, wa, wb int16) { blend(dst, a, b, wa, wb) }

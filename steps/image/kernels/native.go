//go:build amd64 && cgo

package kernels

/*
#cgo CFLAGS: -O3
#cgo noescape tk_inverse
#cgo noescape tk_inverse4
#cgo noescape tk_inverse2
#cgo noescape tk_color
#cgo noescape tk_widen
#cgo noescape tk_lengthen
#cgo noescape tk_stretch
#cgo noescape tk_along
#cgo noescape tk_add
#cgo noescape tk_round
#cgo noescape tk_lerp
#cgo noescape tk_blend
#cgo noescape tk_above
#cgo noescape tk_lines
#cgo nocallback tk_inverse
#cgo nocallback tk_inverse4
#cgo nocallback tk_inverse2
#cgo nocallback tk_color
#cgo nocallback tk_widen
#cgo nocallback tk_lengthen
#cgo nocallback tk_stretch
#cgo nocallback tk_along
#cgo nocallback tk_add
#cgo nocallback tk_round
#cgo nocallback tk_lerp
#cgo nocallback tk_blend
#cgo nocallback tk_above
#cgo nocallback tk_lines
#include "avx2.h"
*/
import "C"

import "golang.org/x/sys/cpu"

// Fast reports whether the processor has AVX2. Without it, Along, Add and Round are slower than the
// loops of package resize.
func Fast() bool { return cpu.X86.HasAVX2 }

func u8(p []byte) *C.uint8_t { return (*C.uint8_t)(&p[0]) }

// Inverse transforms a row of blocks, each of 64 dequantised coefficients in natural order, to 8 rows of
// samples, stride bytes apart.
func Inverse(dst []byte, stride int, coefs []int16) {
	n := len(coefs) / 64
	if n == 0 {
		return
	}
	if !Fast() {
		inverse(dst, stride, coefs)
		return
	}
	C.tk_inverse(u8(dst[:7*stride+8*n]), C.intptr_t(stride), (*C.int16_t)(&coefs[0]), C.intptr_t(n))
}

// Reduced is Inverse to size x size samples per block, where size is 4, 2 or 1.
func Reduced(dst []byte, stride, size int, coefs []int16) {
	n := len(coefs) / 64
	if n == 0 || size == 1 || !Fast() {
		reduced(dst, stride, size, coefs)
		return
	}
	p, c, blocks := u8(dst[:(size-1)*stride+size*n]), (*C.int16_t)(&coefs[0]), C.intptr_t(n)
	if size == 4 {
		C.tk_inverse4(p, C.intptr_t(stride), c, blocks)
	} else {
		C.tk_inverse2(p, C.intptr_t(stride), c, blocks)
	}
}

// Color converts a row of luma and chroma to RGB, three bytes per pixel.
func Color(dst, luma, cb, cr []byte) {
	if n := len(luma); n > 0 && Fast() {
		C.tk_color(u8(dst[:3*n]), u8(luma), u8(cb[:n]), u8(cr[:n]), C.intptr_t(n))
	} else {
		color(dst, luma, cb, cr)
	}
}

// Widen doubles the width of a row of at least 3 samples with the triangle filter of libjpeg.
func Widen(dst, src []byte) {
	if n := len(src); n >= 3 && Fast() {
		C.tk_widen(u8(dst[:2*n]), u8(src), C.intptr_t(n))
	} else {
		widen(dst, src)
	}
}

// Lengthen computes a row between two rows: 3/4 of the first and 1/4 of the second. bias is added before
// the division by 4.
func Lengthen(dst, near, far []byte, bias int) {
	if n := len(near); n > 0 && Fast() {
		C.tk_lengthen(u8(dst[:n]), u8(near), u8(far[:n]), C.intptr_t(n), C.int(bias))
	} else {
		lengthen(dst, near, far, bias)
	}
}

// Stretch computes a row of twice the width between two rows of at least 3 samples.
func Stretch(dst, near, far []byte) {
	if n := len(near); n >= 3 && Fast() {
		C.tk_stretch(u8(dst[:2*n]), u8(near), u8(far[:n]), C.intptr_t(n))
	} else {
		stretch(dst, near, far)
	}
}

// Along resamples two rows of three samples per pixel. The destinations must have room for one byte
// more than the result.
func Along(a, b, rowA, rowB []byte, t *Taps) {
	if n := len(t.at); n > 0 && Fast() {
		C.tk_along(u8(a[:3*n+1]), u8(b[:3*n+1]), u8(rowA[:3*t.width]), u8(rowB[:3*t.width]),
			(*C.int32_t)(&t.at[0]), (*C.int16_t)(&t.weights[0]), C.intptr_t(n), C.intptr_t(t.groups))
	} else {
		along(a, rowA, t)
		along(b, rowB, t)
	}
}

// Add adds two weighted rows to sums.
func Add(sum []int32, a, b []byte, ka, kb int32) {
	if n := len(sum); n > 0 && Fast() {
		C.tk_add((*C.int32_t)(&sum[0]), u8(a[:n]), u8(b[:n]), C.int32_t(ka), C.int32_t(kb), C.intptr_t(n))
	} else {
		add(sum, a, b, ka, kb)
	}
}

// Round converts sums to 8 bits.
func Round(dst []byte, sum []int32) {
	if n := len(sum); n > 0 && Fast() {
		C.tk_round(u8(dst[:n]), (*C.int32_t)(&sum[0]), C.intptr_t(n))
	} else {
		rounded(dst, sum)
	}
}

// Lerp resamples a row of three samples per pixel with two weights of 11 bits each: output i is the sum of pixels at[i]
// and at[i]+1, with 7 fraction bits. The destination must have room for one element more than the result.
func Lerp(dst []int16, src []byte, at []int32, weights []int16) {
	n := len(at)
	for n > 0 && 3*int(at[n-1])+8 > len(src) { // a vector loads 8 bytes
		n--
	}
	if n == 0 || !Fast() {
		lerp(dst, src, at, weights)
		return
	}
	C.tk_lerp((*C.int16_t)(&dst[:3*n+1][0]), u8(src), (*C.int32_t)(&at[0]), (*C.int16_t)(&weights[:2*n][0]), C.intptr_t(n))
	lerp(dst[3*n:], src, at[n:], weights[2*n:])
}

// Blend adds two weighted rows of Lerp and rounds them to 8 bits as OpenCV does.
func Blend(dst []byte, a, b []int16, wa, wb int16) {
	if n := len(dst); n > 0 && Fast() {
		C.tk_blend(u8(dst), (*C.int16_t)(&a[:n][0]), (*C.int16_t)(&b[:n][0]), C.int16_t(wa), C.int16_t(wb), C.intptr_t(n))
	} else {
		blend(dst, a, b, wa, wb)
	}
}

// Above compares numbers with a threshold: 1 for a number above it, 0 for others and for NaN. The destination must have their length.
func Above(dst []byte, values []float32, threshold float32) {
	if n := len(values); n > 0 && Fast() {
		C.tk_above(u8(dst[:n]), (*C.float)(&values[0]), C.float(threshold), C.intptr_t(n))
	} else {
		above(dst, values, threshold)
	}
}

// row replaces the samples of the first pixels of a row, a multiple of 8, with values of l, and returns their number.
func (l *Lines) row(dst *[3][]byte, src []byte) int {
	n := len(src) / 24 * 8
	if n > 0 {
		C.tk_lines(u8(dst[0][:4*n]), u8(dst[1][:4*n]), u8(dst[2][:4*n]), u8(src), (*C.float)(&l[0][0]), C.intptr_t(n))
	}
	return n
}

func fused() bool { return Fast() && cpu.X86.HasFMA }

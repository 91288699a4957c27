// Package kernels holds the inner loops of the steps for images: the inverse transform of JPEG, its chroma and
// colours, the weighted sums of a resize, the normalised samples, and masks. On amd64 with AVX2 they are C with intrinsics, called for a row at a
// time. Elsewhere, and without cgo, they are Go. Both give the same bits. Go checks all sizes before it calls C, and no
// bytes of a file are parsed here.
package kernels

import "slices"

// Precision is the number of fraction bits of a weight, Pillow's PRECISION_BITS.
const Precision = 22

const half = 1 << (Precision - 1)

// Taps are the weights of a resize along rows of three samples per pixel, in the order of the vectors:
// groups of four pixels, each with the lower 15 bits of its weights and then the other bits.
// Outputs whose groups would end beyond the row begin earlier, with weights of 0.
type Taps struct {
	width   int // pixels of a row
	groups  int // groups of an output
	at      []int32
	weights []int16
}

// Reset allocates outputs of at most the given number of weights. It reports false if the rows are too
// short for whole groups.
func (t *Taps) Reset(width, outputs, most int) bool {
	t.width, t.groups = width, (most+3)/4
	if 4*t.groups > width {
		return false
	}
	n := 32 * t.groups * outputs
	t.at, t.weights = slices.Grow(t.at[:0], outputs)[:outputs], slices.Grow(t.weights[:0], n)[:n]
	clear(t.weights)
	return true
}

// Set sets the weights of output i, for the pixels from first on.
func (t *Taps) Set(i, first int, weights []int32) {
	at := min(first, t.width-4*t.groups)
	t.at[i] = int32(at)
	w := t.weights[32*t.groups*i:][:32*t.groups]
	for j, k := range weights {
		j += first - at
		place := w[32*(j/4)+8*(j%4/2)+j%2:]
		low, high := int16(k&0x7fff), int16(k>>15)
		place[0], place[2], place[4] = low, low, low
		place[16], place[18], place[20] = high, high, high
	}
}

// along is Along for one row.
func along(dst, src []byte, t *Taps) {
	for i, at := range t.at {
		sums := [3]int32{half, half, half}
		w := t.weights[32*t.groups*i:]
		for j := range 4 * t.groups {
			place := w[32*(j/4)+8*(j%4/2)+j%2:]
			k := int32(place[0]) + int32(place[16])<<15
			for c := range sums {
				sums[c] += int32(src[3*(int(at)+j)+c]) * k
			}
		}
		rounded(dst[3*i:3*i+3], sums[:])
	}
}

func add(sum []int32, a, b []byte, ka, kb int32) {
	for i := range sum {
		sum[i] += int32(a[i])*ka + int32(b[i])*kb
	}
}

func rounded(dst []byte, sum []int32) {
	for i, s := range sum {
		dst[i] = byte(min(max(s>>Precision, 0), 255))
	}
}

// lerp is Lerp in Go.
func lerp(dst []int16, src []byte, at []int32, weights []int16) {
	for i, p := range at {
		s, w, d := src[3*p:][:6], weights[2*i:][:2], dst[3*i:][:3]
		a, b := int32(w[0]), int32(w[1])
		d[0] = int16((int32(s[0])*a + int32(s[3])*b) >> 4)
		d[1] = int16((int32(s[1])*a + int32(s[4])*b) >> 4)
		d[2] = int16((int32(s[2])*a + int32(s[5])*b) >> 4)
	}
}

// blend is Blend in Go.
func blend(dst []byte, a, b []int16, wa, wb int16) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = byte((int32(a[i])*int32(wa)>>16 + int32(b[i])*int32(wb)>>16 + 2) >> 2)
	}
}

// above is Above in Go.
func above(dst []byte, values []float32, threshold float32) {
	dst = dst[:len(values)]
	for i, v := range values {
		is := byte(0)
		if v > threshold { // the machine code has no branch
			is = 1
		}
		dst[i] = is
	}
}

// widen doubles the width of a row of at least 3 samples with the triangle filter of libjpeg.
func widen(dst, src []byte) {
	n := len(src)
	dst = dst[:2*n]
	dst[0] = src[0]
	dst[1] = byte((3*uint16(src[0]) + uint16(src[1]) + 2) >> 2)
	for i := 1; i < n-1; i++ {
		v := 3 * uint16(src[i])
		dst[2*i] = byte((v + uint16(src[i-1]) + 1) >> 2)
		dst[2*i+1] = byte((v + uint16(src[i+1]) + 2) >> 2)
	}
	dst[2*n-2] = byte((3*uint16(src[n-1]) + uint16(src[n-2]) + 1) >> 2)
	dst[2*n-1] = src[n-1]
}

// lengthen computes a row between two rows: 3/4 of the first and 1/4 of the second.
func lengthen(dst, near, far []byte, bias int) {
	for j, v := range near {
		dst[j] = byte((3*uint16(v) + uint16(far[j]) + uint16(bias)) >> 2)
	}
}

// stretch doubles the width of a row between two rows: first down the columns, then along the row,
// rounded once at the end.
func stretch(dst, near, far []byte) {
	n := len(near)
	dst, far = dst[:2*n], far[:n]
	last := 3*uint32(near[0]) + uint32(far[0])
	this := last
	next := 3*uint32(near[1]) + uint32(far[1])
	dst[0] = byte((4*this + 8) >> 4)
	dst[1] = byte((3*this + next + 7) >> 4)
	pairs := dst[2:]
	for i, v := range near[2:] {
		last, this, next = this, next, 3*uint32(v)+uint32(far[i+2])
		if len(pairs) < 2 { // never; removes the bounds checks below
			break
		}
		pairs[0] = byte((3*this + last + 8) >> 4)
		pairs[1] = byte((3*this + next + 7) >> 4)
		pairs = pairs[2:]
	}
	dst[2*n-2] = byte((3*next + this + 8) >> 4)
	dst[2*n-1] = byte((4*next + 7) >> 4)
}

// color converts YCbCr to RGB with the fixed-point factors and rounding of libjpeg (ITU-R BT.601, full range).
func color(dst, luma, cb, cr []byte) {
	cb, cr = cb[:len(luma)], cr[:len(luma)]
	for i, v := range luma {
		if len(dst) < 3 { // never; removes the bounds checks below
			return
		}
		y, b, r := int32(v), int32(cb[i])-128, int32(cr[i])-128
		dst[0] = clamped[uint32(y+(91881*r+1<<15)>>16)%1024]
		dst[1] = clamped[uint32(y+(-22554*b-46802*r+1<<15)>>16)%1024]
		dst[2] = clamped[uint32(y+(116130*b+1<<15)>>16)%1024]
		dst = dst[3:]
	}
}

// clamped clamps -512..511 to a byte, indexed modulo 1024. Colour conversion stays within that range. A
// table is faster than three unpredictable branches per pixel.
var clamped = clampTable()

func clampTable() *[1024]byte {
	var t [1024]byte
	for v := -512; v < 512; v++ {
		t[v&1023] = byte(min(max(v, 0), 255))
	}
	return &t
}

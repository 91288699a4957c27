package kernels

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

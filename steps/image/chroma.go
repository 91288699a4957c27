package image

import "image"

// yccRow converts one row of luma and full-width chroma to packed RGB, with the
// fixed-point factors and rounding of libjpeg (ITU-R BT.601, full range).
func yccRow(dst, luma, cb, cr []byte) {
	cb, cr = cb[:len(luma)], cr[:len(luma)]
	for i, v := range luma {
		if len(dst) < 3 { // Never; it spares the bounds checks below.
			return
		}
		y, b, r := int32(v), int32(cb[i])-128, int32(cr[i])-128
		dst[0] = clamped[uint32(y+(91881*r+1<<15)>>16)%1024]
		dst[1] = clamped[uint32(y+(-22554*b-46802*r+1<<15)>>16)%1024]
		dst[2] = clamped[uint32(y+(116130*b+1<<15)>>16)%1024]
		dst = dst[3:]
	}
}

// clamped limits -512..511 to a byte, indexed modulo 1024. Colour conversion
// stays within that, and a table beats three unpredictable branches per pixel.
var clamped = clampTable()

func clampTable() *[1024]byte {
	var t [1024]byte
	for v := -512; v < 512; v++ {
		t[v&1023] = clamp(int32(v))
	}
	return &t
}

// clamp limits v to a byte.
func clamp(v int32) byte { return byte(min(max(v, 0), 255)) }

// upsample gives row y of one chroma plane at full width w. Planes that are
// halved get libjpeg's triangle filter ("fancy upsampling"), which weighs the
// nearer sample 3 to 1; other ratios repeat samples, as libjpeg does.
func (c *converter) upsample(dst, plane []byte, src *image.YCbCr, y int) []byte {
	w, stride := c.w, src.CStride
	switch src.SubsampleRatio {
	case image.YCbCrSubsampleRatio444:
		return plane[y*stride:][:w]
	case image.YCbCrSubsampleRatio422:
		half := plane[y*stride:][:(w+1)/2]
		if len(half) > 2 {
			widen(dst, half)
			return dst[:w]
		}
		repeat(dst[:w], half, 2)
	case image.YCbCrSubsampleRatio440:
		near, far := c.chromaRows(plane, stride, w, y)
		bias := 1 + uint16(y&1)
		for i, v := range near {
			dst[i] = byte((3*uint16(v) + uint16(far[i]) + bias) >> 2)
		}
	case image.YCbCrSubsampleRatio420:
		half := (w + 1) / 2
		if half > 2 {
			c.widenTall(dst, plane, stride, y)
			return dst[:w]
		}
		repeat(dst[:w], plane[y/2*stride:][:half], 2)
	case image.YCbCrSubsampleRatio411:
		repeat(dst[:w], plane[y*stride:][:(w+3)/4], 4)
	case image.YCbCrSubsampleRatio410:
		repeat(dst[:w], plane[y/2*stride:][:(w+3)/4], 4)
	}
	return dst[:w]
}

// repeat stretches src by n.
func repeat(dst, src []byte, n int) {
	for i := range dst {
		dst[i] = src[i/n]
	}
}

// chromaRows gives the first w samples of the two rows of a plane of half the
// height that row y lies between, the nearer first. Rows beyond an edge are the
// edge's own.
func (c *converter) chromaRows(plane []byte, stride, w, y int) (near, far []byte) {
	last := (c.h+1)/2 - 1
	n := y / 2
	f := n - 1 + y&1*2
	f = min(max(f, 0), last)
	near = plane[n*stride:][:w]
	return near, plane[f*stride:][:len(near)]
}

// widen doubles a row in width (libjpeg h2v1). dst has room for a whole pair
// after an odd width; len(src) is at least 3.
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

// widenTall doubles a row of a plane halved both ways (libjpeg h2v2): first down
// the columns, then along the row, rounded once at the end.
func (c *converter) widenTall(dst, plane []byte, stride, y int) {
	n := (c.w + 1) / 2
	near, far := c.chromaRows(plane, stride, n, y)
	dst, near, far = dst[:2*n], near[:n], far[:n]
	last := 3*uint32(near[0]) + uint32(far[0])
	this := last
	next := 3*uint32(near[1]) + uint32(far[1])
	dst[0] = byte((4*this + 8) >> 4)
	dst[1] = byte((3*this + next + 7) >> 4)
	for i := 2; i < n; i++ {
		last, this, next = this, next, 3*uint32(near[i])+uint32(far[i])
		dst[2*i-2] = byte((3*this + last + 8) >> 4)
		dst[2*i-1] = byte((3*this + next + 7) >> 4)
	}
	dst[2*n-2] = byte((3*next + this + 8) >> 4)
	dst[2*n-1] = byte((4*next + 7) >> 4)
}

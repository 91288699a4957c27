// Package warp cuts quadrilaterals out of images of 8-bit samples, with the bits of cv2.getPerspectiveTransform and
// cv2.warpPerspective with INTER_CUBIC and BORDER_REPLICATE. The reference is opencv-python-headless 5.0.0.93 on a
// processor with AVX2. OpenCV 4 rounds positions to 1/32 of a pixel; its samples differ by a few.
package warp

import "math"

// Image is an image of three samples per pixel, row after row.
type Image struct {
	Pix  []byte
	W, H int
}

// Cubic fills dst: its pixel (x, y) is that of src at back(x, y). Sizes must be at least 1.
//
// Positions are computed in float32 along the columns and in float64 along the rows, and rounded to float32. A sample is
// a sum of 4 x 4 samples with the weights of Keys' kernel, in float32 with fused multiply-add.
//
// hot: no allocation.
func Cubic(dst, src *Image, back *Matrix) {
	var m [9]float32
	for i, v := range back {
		m[i] = float32(v)
	}
	by, moved := shift(&m, dst)
	for y := range dst.H {
		from, to := 0, 0 // the pixels that are copied
		if at := y + by.y; moved && at >= 1 && at+2 < src.H {
			from = min(max(0, 1-by.x), dst.W)
			to = max(from, min(dst.W, src.W-2-by.x))
			copy(dst.Pix[3*(y*dst.W+from):3*(y*dst.W+to)], src.Pix[3*(at*src.W+by.x+from):])
		}
		line(dst, src, &m, y, 0, from)
		line(dst, src, &m, y, to, dst.W)
	}
}

// line computes the pixels of row y of dst from one column to another.
func line(dst, src *Image, m *[9]float32, y, from, to int) {
	row, fy := dst.Pix[3*y*dst.W:][:3*dst.W], float32(y)
	x0, y0, z0 := float64(float32(fy*m[1])+m[2]), float64(float32(fy*m[4])+m[5]), float64(float32(fy*m[7])+m[8])
	for x := from; x < to; x++ {
		fx := float64(x)
		z := 1 / (z0 + float64(float64(m[6])*fx))
		px := float32((x0 + float64(float64(m[0])*fx)) * z)
		py := float32((y0 + float64(float64(m[3])*fx)) * z)
		pixel((*[3]byte)(row[3*x:]), src, px, py)
	}
}

// offset is a distance in whole pixels.
type offset struct{ x, y int }

// shift reports whether a transform moves the pixels of dst by whole numbers, so that they can be copied. The transforms of boxes
// along the axes do, but for the last bits: a position near the whole number N, at least 1, is rounded to N if it is within 2^-25, half
// of the distance from 1 to the float32 below. The bound adds up what the coefficients can contribute, each rounding counted twice.
func shift(m *[9]float32, dst *Image) (by offset, ok bool) {
	const within, most = 1.0 / (1 << 26), 1 << 20
	off := func(v float32, whole float64) float64 { return math.Abs(float64(v) - whole) }
	x, y := math.Round(float64(m[2])), math.Round(float64(m[5]))
	w, h := float64(dst.W), float64(dst.H)
	z := off(m[6], 0)*w + 2*(off(m[7], 0)*h+off(m[8], 1))
	dx := off(m[0], 1)*w + 2*(off(m[1], 0)*h+off(m[2], x)) + 2*z*(math.Abs(x)+w)
	dy := off(m[3], 0)*w + 4*(off(m[4], 1)*h+off(m[5], y)) + 2*z*(math.Abs(y)+h)
	if dx < within && dy < within && math.Abs(x) < most && math.Abs(y) < most {
		return offset{int(x), int(y)}, true
	}
	return offset{}, false
}

// pixel computes the pixel of src at (px, py).
func pixel(dst *[3]byte, src *Image, px, py float32) {
	x, fx := split(px, src.W)
	y, fy := split(py, src.H)
	inside := x >= 1 && y >= 1 && x+2 < src.W && y+2 < src.H
	if inside && fx == 0 && fy == 0 {
		*dst = [3]byte(src.Pix[3*(y*src.W+x):])
		return
	}
	n := near{wx: weights(fx), wy: weights(fy)}
	if inside {
		for i := range n.rows {
			n.rows[i] = [12]byte(src.Pix[3*((y-1+i)*src.W+x-1):])
		}
	} else {
		n.fetch(src, x, y)
	}
	n.sum(dst)
}

// split returns the pixel at or before a position and the distance to it. The position is limited to what lies beyond
// the edges by the size of the image; NaN counts as the lower limit.
func split(p float32, size int) (int, float32) {
	size = max(size, 16)
	if !(p > float32(-size)) {
		p = float32(-size)
	}
	p = min(p, float32(2*size))
	at := float32(math.Floor(float64(p)))
	return int(at), p - at
}

// weights returns the weights of four samples, of which the second is at distance x: Keys' kernel with a = -0.75.
func weights(x float32) [4]float32 {
	const a = float32(-0.75)
	b := 1 - x
	w0, w3 := a*float32(x*float32(b*b)), a*float32(float32(x*x)*b)
	w1 := fma(x*x, fma(a+2, x, -(a+3)), 1)
	return [4]float32{w0, w1, 1 - w0 - w1 - w3, w3}
}

// fma returns x*y + z, rounded once but for results half way between two numbers.
func fma(x, y, z float32) float32 { return float32(float64(x)*float64(y) + float64(z)) }

// near holds the 4 x 4 pixels around a position and their weights.
type near struct {
	rows   [4][12]byte
	wx, wy [4]float32
}

// fetch reads the pixels around (x, y). Those beyond an edge are the pixel at the edge.
func (n *near) fetch(src *Image, x, y int) {
	for i := range 4 {
		at := max(0, min(src.H-1, y-1+i)) * src.W
		for j := range 4 {
			copy(n.rows[i][3*j:3*j+3], src.Pix[3*(at+max(0, min(src.W-1, x-1+j))):])
		}
	}
}

// sum computes the samples of the pixel. A sum in float64 decides all but those that are close to the middle of two
// integers, where the roundings of float32 count.
func (n *near) sum(dst *[3]byte) {
	const margin = 1.0 / 256 // 32 roundings of numbers below 2^11
	var x, y [4]float64
	for i := range 4 {
		x[i], y[i] = float64(n.wx[i]), float64(n.wy[i])
	}
	var s [3]float64
	for i := range 4 {
		p := &n.rows[i]
		s[0] += y[i] * (x[0]*float64(p[0]) + x[1]*float64(p[3]) + x[2]*float64(p[6]) + x[3]*float64(p[9]))
		s[1] += y[i] * (x[0]*float64(p[1]) + x[1]*float64(p[4]) + x[2]*float64(p[7]) + x[3]*float64(p[10]))
		s[2] += y[i] * (x[0]*float64(p[2]) + x[1]*float64(p[5]) + x[2]*float64(p[8]) + x[3]*float64(p[11]))
	}
	for c, v := range s {
		if d := v - math.Floor(v) - 0.5; -margin < d && d < margin {
			v = math.RoundToEven(float64(n.exact(c)))
		} else {
			v += 0.5
		}
		dst[c] = byte(max(0, min(255, v)))
	}
}

// exact computes the sum of one channel with the roundings of OpenCV.
func (n *near) exact(c int) (s float32) {
	for i := range 4 {
		p := n.rows[i][c:]
		row := fma(float32(p[3]), n.wx[1], float32(float32(p[0])*n.wx[0]))
		row = fma(float32(p[6]), n.wx[2], row)
		row = fma(float32(p[9]), n.wx[3], row)
		s = fma(row, n.wy[i], s)
	}
	return s
}

package resize

import "github.com/tutti-server/tutti/steps/image/raster"

// reduced is a part of an image at a fraction of its size: each pixel is the mean of a box of fx x fy pixels, as by
// Pillow's Image.reduce. Boxes at the right and lower edges may be smaller.
type reduced struct {
	src    raster.Rows
	part   Rect
	fx, fy int
	w, h   int
	line   []byte
	sums   []uint32
}

var _ raster.Image = (*reduced)(nil)

// reduce points r at the part of src that x and y resample, if an axis shrinks by twice gap or
// more, and changes x and y to spans of r.
func (r *reduced) reduce(src *raster.Rows, p Rect, x, y *span, gap float64) bool {
	if x.filter == Nearest {
		return false
	}
	fx, fy := fold(x, gap), fold(y, gap)
	if fx == 1 && fy == 1 {
		return false
	}
	*r = reduced{
		src: *src, part: p, fx: fx, fy: fy, w: (p.W + fx - 1) / fx, h: (p.H + fy - 1) / fy,
		line: raster.Sized(r.line, src.W*src.Channels()), sums: r.sums,
	}
	x.In, x.extent = r.w, float64(float32(float64(p.W)/float64(fx)))
	y.In, y.extent = r.h, float64(float32(float64(p.H)/float64(fy)))
	return true
}

// fold returns the size of the boxes on an axis, so that gap times the output remains.
func fold(s *span, gap float64) int { return max(int(float64(s.In)/float64(s.Out)/gap), 1) }

// Size implements raster.Image.
func (r *reduced) Size() (width, height int) { return r.w, r.h }

// Gray implements raster.Image.
func (r *reduced) Gray() bool { return r.src.Space() == raster.Gray }

// Row implements raster.Image.
func (r *reduced) Row(dst []byte, y int) {
	ch := r.src.Channels()
	r.sums = raster.Sized(r.sums, r.w*ch)
	clear(r.sums)
	top := y * r.fy
	rows := min(r.fy, r.part.H-top)
	for i := range rows {
		line := r.src.Peek(r.line, r.part.Y+top+i)[r.part.X*ch:][:r.part.W*ch]
		raster.AddBoxes(r.sums, line, r.fx, ch)
	}
	whole := r.part.W / r.fx * ch
	mean(dst[:whole], r.sums, r.fx*rows)
	mean(dst[whole:r.w*ch], r.sums[whole:], r.part.W%r.fx*rows)
}

// mean divides sums of n samples as Pillow does: it multiplies by a factor of 32 bits that was rounded to a float32.
func mean(dst []byte, sums []uint32, n int) {
	if len(dst) == 0 {
		return
	}
	factor := uint32(float32(1<<32) / float32(256*n))
	for i := range dst {
		dst[i] = byte((sums[i] + uint32(n/2)) * factor >> 24)
	}
}

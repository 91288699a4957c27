package jpeg

import "github.com/tutti-server/tutti/steps/image/kernels"

// plane returns row y of a component at full width. Halved components get libjpeg's triangle filter,
// which weighs the nearer sample 3 to 1, unless the image is decoded at an eighth or is a few
// samples wide. Other ratios repeat samples. Rows have room for a whole pair after an odd width.
func (d *Decoder) plane(i, y int) []byte {
	c := &d.comps[i]
	fancy := d.scale < 8
	switch {
	case c.hx == 1 && c.vx == 1:
		return c.line(y)[:d.outW]
	case c.hx == 2 && c.vx == 1 && fancy && c.w > 2:
		dst := sized(&d.rows[i], 2*c.w)
		kernels.Widen(dst, c.line(y))
		return dst[:d.outW]
	case c.hx == 1 && c.vx == 2 && fancy:
		dst := sized(&d.rows[i], c.w)
		near, far := c.around(y)
		kernels.Lengthen(dst, near, far, 1+y&1)
		return dst[:d.outW]
	case c.hx == 2 && c.vx == 2 && fancy && c.w > 2:
		dst := sized(&d.rows[i], 2*c.w)
		near, far := c.around(y)
		kernels.Stretch(dst, near, far)
		return dst[:d.outW]
	default:
		dst := sized(&d.rows[i], d.outW)
		repeat(dst, c.line(y/c.vx), c.hx)
		return dst
	}
}

// line returns row y of the stored samples.
func (c *component) line(y int) []byte { return c.plane[y*c.stride:][:c.w] }

// around returns the two stored rows around row y of the image, the nearer one first. Beyond an edge
// it is the row at the edge.
func (c *component) around(y int) (near, far []byte) {
	near = c.line(y / 2)
	far = c.line(min(max(y/2-1+y&1*2, 0), c.hi-1))
	return near, far[:len(near)]
}

// repeat writes every sample of src n times.
func repeat(dst, src []byte, n int) {
	for i := range dst {
		dst[i] = src[i/n]
	}
}

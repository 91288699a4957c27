package jpeg

// plane gives row y of a component at full width. Halved ones get libjpeg's triangle
// filter, which weighs the nearer sample 3 to 1, unless the picture is an eighth or a
// few samples wide; other ratios repeat samples. dst has room for a whole pair after
// an odd width.
func (d *Decoder) plane(i, y int) []byte {
	c := &d.comps[i]
	fancy := d.scale < 8
	switch {
	case c.hx == 1 && c.vx == 1:
		return c.line(y)[:d.outW]
	case c.hx == 2 && c.vx == 1 && fancy && c.w > 2:
		dst := sized(&d.rows[i], 2*c.w)
		widen(dst, c.line(y))
		return dst[:d.outW]
	case c.hx == 1 && c.vx == 2 && fancy:
		dst := sized(&d.rows[i], c.w)
		near, far := c.around(y)
		bias := 1 + uint16(y&1)
		for j, v := range near {
			dst[j] = byte((3*uint16(v) + uint16(far[j]) + bias) >> 2)
		}
		return dst[:d.outW]
	case c.hx == 2 && c.vx == 2 && fancy && c.w > 2:
		dst := sized(&d.rows[i], 2*c.w)
		near, far := c.around(y)
		widenTall(dst, near, far)
		return dst[:d.outW]
	default:
		dst := sized(&d.rows[i], d.outW)
		repeat(dst, c.line(y/c.vx), c.hx)
		return dst
	}
}

// line is row y of the component's own samples.
func (c *component) line(y int) []byte { return c.plane[y*c.stride:][:c.w] }

// around gives the two rows that row y of the picture lies between, the nearer
// first. Rows beyond an edge are the edge's own.
func (c *component) around(y int) (near, far []byte) {
	near = c.line(y / 2)
	far = c.line(min(max(y/2-1+y&1*2, 0), c.hi-1))
	return near, far[:len(near)]
}

// repeat stretches src by n.
func repeat(dst, src []byte, n int) {
	for i := range dst {
		dst[i] = src[i/n]
	}
}

// widen doubles a row of at least 3 samples in width.
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

// widenTall doubles a row that is halved both ways: first down the columns, then
// along the row, rounded once at the end.
func widenTall(dst, near, far []byte) {
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
		if len(pairs) < 2 { // Never; it spares the bounds checks below.
			break
		}
		pairs[0] = byte((3*this + last + 8) >> 4)
		pairs[1] = byte((3*this + next + 7) >> 4)
		pairs = pairs[2:]
	}
	dst[2*n-2] = byte((3*next + this + 8) >> 4)
	dst[2*n-1] = byte((4*next + 7) >> 4)
}

package jpeg

import (
	"github.com/tutti-server/tutti/steps/image/kernels"
	"github.com/tutti-server/tutti/steps/image/raster"
)

// Size returns the size of the decoded image.
func (d *Decoder) Size() (width, height int) { return d.outW, d.outH }

// Gray reports whether the image has one component.
func (d *Decoder) Gray() bool { return d.n == 1 }

// Components returns the number of components.
func (d *Decoder) Components() int { return d.n }

// Row writes row y, from the top, into dst: one byte per pixel if Gray, else three bytes of RGB.
// CMYK and YCCK are converted as Pillow's convert("RGB") does.
func (d *Decoder) Row(dst []byte, y int) {
	switch {
	case d.n == 1:
		copy(dst, d.Component(0, y))
	case d.n == 3 && d.isRGB():
		merge(dst, d.Component(0, y), d.Component(1, y), d.Component(2, y))
	case d.n == 3:
		kernels.Color(dst, d.Component(0, y), d.Component(1, y), d.Component(2, y))
	case d.adobe >= 0 && d.adobe != 0: // YCCK, inverted: the conversion gives 255 minus the ink
		kernels.Color(dst, d.Component(0, y), d.Component(1, y), d.Component(2, y))
		for i, v := range dst[:3*d.outW] {
			dst[i] = 255 - v
		}
		blacken(dst, d.Component(3, y))
	default:
		merge(dst, d.Component(0, y), d.Component(1, y), d.Component(2, y))
		blacken(dst, d.Component(3, y))
	}
}

// isRGB reports whether three components are RGB, by the rules of libjpeg.
func (d *Decoder) isRGB() bool {
	switch {
	case d.jfif:
		return false
	case d.adobe >= 0:
		return d.adobe == 0
	}
	return d.comps[0].id == 'R' && d.comps[1].id == 'G' && d.comps[2].id == 'B'
}

// merge interleaves three planes.
func merge(dst, a, b, c []byte) {
	b, c, dst = b[:len(a)], c[:len(a)], dst[:3*len(a)]
	for i, v := range a {
		p := dst[3*i : 3*i+3 : 3*i+3]
		p[0], p[1], p[2] = v, b[i], c[i]
	}
}

// blacken applies black to three inks as Pillow does. All are stored inverted: 255 is no ink.
func blacken(dst, black []byte) {
	for i, k := range black {
		white := int32(k)
		p := dst[3*i : 3*i+3 : 3*i+3]
		for j, v := range p {
			t := int32(255-v)*white + 128
			p[j] = byte(max(white-(t>>8+t)>>8, 0))
		}
	}
}

// Component returns row y of a component at full size, before colour conversion. It is valid until the next call for
// that component.
//
// Halved components get libjpeg's triangle filter,
// which weighs the nearer sample 3 to 1, unless the image is decoded at an eighth or is a few
// samples wide. Other ratios repeat samples. Rows have room for a whole pair after an odd width.
func (d *Decoder) Component(i, y int) []byte {
	c := &d.comps[i]
	if c.hx == 1 && c.vx == 1 {
		return c.line(y)[:d.outW]
	}
	d.rows[i] = raster.Sized(d.rows[i], max(c.hx*c.w, d.outW))
	dst, fancy := d.rows[i], d.scale < 8
	switch {
	case c.hx == 2 && c.vx == 1 && fancy && c.w > 2:
		kernels.Widen(dst[:2*c.w], c.line(y))
	case c.hx == 1 && c.vx == 2 && fancy:
		near, far := c.around(y)
		kernels.Lengthen(dst[:c.w], near, far, 1+y&1)
	case c.hx == 2 && c.vx == 2 && fancy && c.w > 2:
		near, far := c.around(y)
		kernels.Stretch(dst[:2*c.w], near, far)
	default:
		line := c.line(y / c.vx)
		for x := range d.outW {
			dst[x] = line[x/c.hx]
		}
	}
	return dst[:d.outW]
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

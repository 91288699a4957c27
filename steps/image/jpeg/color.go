package jpeg

import "github.com/tutti-server/tutti/steps/image/kernels"

// Size returns the size of the decoded image.
func (d *Decoder) Size() (width, height int) { return d.outW, d.outH }

// Gray reports whether the image has one component.
func (d *Decoder) Gray() bool { return d.n == 1 }

// Components returns the number of components.
func (d *Decoder) Components() int { return d.n }

// Component returns row y of a component at full size, before colour conversion. It is valid until
// the next call for that component.
func (d *Decoder) Component(i, y int) []byte { return d.plane(i, y) }

// Row writes row y, from the top, into dst: one byte per pixel if Gray, else three bytes of RGB.
// CMYK and YCCK are converted as Pillow's convert("RGB") does.
func (d *Decoder) Row(dst []byte, y int) {
	switch {
	case d.n == 1:
		copy(dst, d.plane(0, y))
	case d.n == 3 && d.isRGB():
		merge(dst, d.plane(0, y), d.plane(1, y), d.plane(2, y))
	case d.n == 3:
		kernels.Color(dst, d.plane(0, y), d.plane(1, y), d.plane(2, y))
	case d.adobe >= 0 && d.adobe != 0: // YCCK, inverted: the conversion gives 255 minus the ink
		kernels.Color(dst, d.plane(0, y), d.plane(1, y), d.plane(2, y))
		for i, v := range dst[:3*d.outW] {
			dst[i] = 255 - v
		}
		blacken(dst, d.plane(3, y))
	default:
		merge(dst, d.plane(0, y), d.plane(1, y), d.plane(2, y))
		blacken(dst, d.plane(3, y))
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

package image

// converter reads a picture row by row as packed 8-bit samples: three per pixel, or
// one when grey is asked for. It is scratch that is kept between images; set points it
// at the next one.
type converter struct {
	pic  picture
	w, h int
	gray bool
	ycc  bool   // YCbCr instead of RGB.
	line []byte // One row on its way to grey or to colour.
}

// set points the converter at a picture.
func (c *converter) set(pic picture, to space) {
	c.pic, c.gray, c.ycc = pic, to == gray, to == ycbcr
	c.w, c.h = pic.Size()
}

// space is the colour of the rows for a picture that has it already.
func (c *converter) space() space {
	if c.gray {
		return gray
	}
	return rgb
}

// channels is the number of samples per pixel.
func (c *converter) channels() int {
	if c.gray {
		return 1
	}
	return 3
}

// row writes row y (from the top, 0 first) into dst, which has w*channels bytes.
func (c *converter) row(dst []byte, y int) {
	switch from := c.pic.Gray(); {
	case from == c.gray:
		c.pic.Row(dst, y)
		if c.ycc {
			toYCC(dst[:3*c.w])
		}
	case from:
		c.line = resized(c.line, c.w)
		c.pic.Row(c.line, y)
		if c.ycc {
			toLuma(dst, c.line)
			return
		}
		grayRow(dst, c.line)
	default:
		c.line = resized(c.line, 3*c.w)
		c.pic.Row(c.line, y)
		lumaRow(dst[:c.w], c.line)
	}
}

// inMemory is a picture whose rows need not be copied, but for those it has nil for.
type inMemory interface{ row(y int) []byte }

// peek gives row y, in dst unless it is in memory as it should be.
func (c *converter) peek(dst []byte, y int) []byte {
	if m, ok := c.pic.(inMemory); ok && !c.ycc && c.pic.Gray() == c.gray {
		if p := m.row(y); p != nil {
			return p
		}
	}
	c.row(dst, y)
	return dst
}

// lumaRow is the ITU-R 601 luma in 16-bit fixed point, as Pillow has it.
func lumaRow(dst, rgb []byte) {
	for i := range dst {
		p := rgb[3*i : 3*i+3 : 3*i+3]
		dst[i] = byte((uint32(p[0])*19595 + uint32(p[1])*38470 + uint32(p[2])*7471 + 0x8000) >> 16)
	}
}

// grayRow repeats each sample for the three colours.
func grayRow(dst, gray []byte) {
	for i, v := range gray {
		p := dst[3*i : 3*i+3 : 3*i+3]
		p[0], p[1], p[2] = v, v, v
	}
}

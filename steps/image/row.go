package image

// converter reads a picture row by row as packed 8-bit samples: three per pixel, or
// one when grey is asked for. It is scratch that is kept between images; set points it
// at the next one.
type converter struct {
	pic  picture
	w, h int
	gray bool
	line []byte // One row on its way to grey or to colour.
}

// set points the converter at a picture.
func (c *converter) set(pic picture, gray bool) {
	c.pic, c.gray = pic, gray
	c.w, c.h = pic.Size()
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
	case from:
		c.line = resized(c.line, c.w)
		c.pic.Row(c.line, y)
		grayRow(dst, c.line)
	default:
		c.line = resized(c.line, 3*c.w)
		c.pic.Row(c.line, y)
		lumaRow(dst[:c.w], c.line)
	}
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

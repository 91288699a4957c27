package image

import (
	"image"
	"image/color"
)

// converter reads a decoded image row by row as packed 8-bit samples: three per
// pixel, or one when grey is asked for. It is scratch that is kept between
// images; set points it at the next one.
type converter struct {
	img     image.Image
	w, h    int
	gray    bool
	ycc     bool   // YCbCr instead of RGB.
	cb, cr  []byte // One row of chroma at full width.
	rgb     []byte // One row in colour on its way to grey.
	palette [256][3]byte
}

// set points the converter at an image.
func (c *converter) set(img image.Image, to space) {
	b := img.Bounds()
	c.img, c.w, c.h, c.gray, c.ycc = img, b.Dx(), b.Dy(), to == gray, to == ycbcr
	if m, ok := img.(*image.Paletted); ok {
		c.readPalette(m.Palette)
	}
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
	switch m := c.img.(type) {
	case *image.Gray:
		c.grayRow(dst, m.Pix[m.PixOffset(m.Rect.Min.X, m.Rect.Min.Y+y):][:c.w])
		return
	case *samples:
		if m.ch == 1 {
			c.grayRow(dst, m.row(y))
			return
		}
	}
	if !c.gray {
		c.colorRow(dst, y)
		if c.ycc {
			toYCC(dst[:3*c.w])
		}
		return
	}
	c.rgb = resized(c.rgb, 3*c.w)
	c.colorRow(c.rgb, y)
	lumaRow(dst[:c.w], c.rgb)
}

// lumaRow is the ITU-R 601 luma in 16-bit fixed point, as Pillow has it.
func lumaRow(dst, rgb []byte) {
	for i := range dst {
		p := rgb[3*i : 3*i+3 : 3*i+3]
		dst[i] = byte((uint32(p[0])*19595 + uint32(p[1])*38470 + uint32(p[2])*7471 + 0x8000) >> 16)
	}
}

func (c *converter) grayRow(dst, src []byte) {
	if c.gray {
		copy(dst, src)
		return
	}
	if c.ycc {
		toLuma(dst, src)
		return
	}
	for i, v := range src {
		p := dst[3*i : 3*i+3 : 3*i+3]
		p[0], p[1], p[2] = v, v, v
	}
}

// colorRow writes a row as RGB. Every type that the two decoders return has a
// case of its own; the last one is for types they may return in the future.
func (c *converter) colorRow(dst []byte, y int) {
	x0, y0 := c.img.Bounds().Min.X, c.img.Bounds().Min.Y+y
	switch m := c.img.(type) {
	case *image.YCbCr:
		c.ycbcrRow(dst, m, y)
	case *image.RGBA:
		pick(dst[:3*c.w], m.Pix[m.PixOffset(x0, y0):], 4, 1, 2)
	case *image.NRGBA:
		pick(dst[:3*c.w], m.Pix[m.PixOffset(x0, y0):], 4, 1, 2)
	case *image.RGBA64:
		pick(dst[:3*c.w], m.Pix[m.PixOffset(x0, y0):], 8, 2, 4)
	case *image.NRGBA64:
		pick(dst[:3*c.w], m.Pix[m.PixOffset(x0, y0):], 8, 2, 4)
	case *image.Gray16:
		pick(dst[:3*c.w], m.Pix[m.PixOffset(x0, y0):], 2, 0, 0)
	case *image.Paletted:
		for i, v := range m.Pix[m.PixOffset(x0, y0):][:c.w] {
			copy(dst[3*i:3*i+3], c.palette[v][:])
		}
	case *samples:
		if m.ch == 3 {
			copy(dst, m.row(y))
			return
		}
		pick(dst[:3*c.w], m.row(y), 4, 1, 2)
	case *image.CMYK:
		cmykRow(dst, m.Pix[m.PixOffset(x0, y0):][:4*c.w])
	default:
		c.anyRow(dst, y)
	}
}

// pick takes the first byte, and those at g and b, out of every n.
func pick(dst, src []byte, n, g, b int) {
	for len(dst) >= 3 && len(src) >= n {
		dst[0], dst[1], dst[2] = src[0], src[g], src[b]
		dst, src = dst[3:], src[n:]
	}
}

func (c *converter) ycbcrRow(dst []byte, m *image.YCbCr, y int) {
	// A whole pair of samples is written for the last pixel of an odd width.
	c.cb, c.cr = resized(c.cb, c.w+1), resized(c.cr, c.w+1)
	luma := m.Y[m.YOffset(m.Rect.Min.X, m.Rect.Min.Y+y):][:c.w]
	yccRow(dst, luma, c.upsample(c.cb, m.Cb, m, y), c.upsample(c.cr, m.Cr, m, y))
}

// cmykRow follows Pillow's CMYK to RGB: white less black, less its share of the
// ink.
func cmykRow(dst, src []byte) {
	for len(dst) >= 3 && len(src) >= 4 {
		white := 255 - int32(src[3])
		for i := range 3 {
			t := int32(src[i])*white + 128
			dst[i] = clamp(white - (t>>8+t)>>8)
		}
		dst, src = dst[3:], src[4:]
	}
}

func (c *converter) anyRow(dst []byte, y int) {
	b := c.img.Bounds()
	for x := range c.w {
		p := nrgba(c.img.At(b.Min.X+x, b.Min.Y+y))
		copy(dst[3*x:3*x+3], p[:])
	}
}

func (c *converter) readPalette(p color.Palette) {
	c.palette = [256][3]byte{}
	for i, v := range p[:min(len(p), 256)] {
		c.palette[i] = nrgba(v)
	}
}

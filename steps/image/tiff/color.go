package tiff

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/tutti-server/tutti/steps/image/raster"
)

// converter converts rows of samples, a byte each, to gray or RGB, and alpha.
type converter struct {
	h       *Header
	levels  [256]byte    // the samples of gray values
	palette [256][3]byte // the colours of indices
}

// set prepares for an image.
func (c *converter) set(h *Header) error {
	c.h = h
	switch h.colors {
	case whiteIsZero, blackIsZero:
		most := 1<<min(h.bits, 8) - 1
		for i := range c.levels {
			v := byte(min(i, most) * 255 / most)
			if h.colors == whiteIsZero && !h.float {
				v = ^v
			}
			c.levels[i] = v
		}
	case palette:
		v := h.order.values(tagColorMap)
		n := v.len() / 3
		if n == 0 {
			return errors.New("no TIFF palette")
		}
		c.palette = [256][3]byte{}
		for i := range min(n, len(c.palette)) {
			for k := range 3 {
				c.palette[i][k] = byte(v.at(k*n+i) >> 8)
			}
		}
	}
	return nil
}

// row converts a row of samples to pixels. alpha is empty where there is none.
func (c *converter) row(pix, alpha, samples []byte) {
	n := c.h.samples
	colors := n
	switch c.h.colors {
	case whiteIsZero, blackIsZero:
		colors = 1
		c.gray(pix, samples, n)
	case palette:
		colors = 1
		for i := range len(pix) / 3 {
			copy(pix[3*i:3*i+3], c.palette[samples[i*n]][:])
		}
	case colorCMYK:
		cmyk(pix, samples, n)
	default:
		if colors = 3; n == 3 {
			copy(pix, samples)
		} else {
			raster.Pick(pix, samples, n, 1, 2)
		}
	}
	if len(alpha) == 0 {
		return
	}
	for i := range alpha {
		alpha[i] = samples[i*n+colors]
	}
	if c.h.alpha == premultiplied && c.h.colors == colorRGB {
		divide(pix, alpha)
	}
}

func (c *converter) gray(pix, samples []byte, n int) {
	if c.h.Gray {
		for i := range pix {
			pix[i] = c.levels[samples[i*n]]
		}
		return
	}
	for i := range len(pix) / 3 {
		v, p := c.levels[samples[i*n]], pix[3*i:3*i+3:3*i+3]
		p[0], p[1], p[2] = v, v, v
	}
}

// cmyk converts inks and black to RGB as Pillow does.
func cmyk(pix, samples []byte, n int) {
	for i := range len(pix) / 3 {
		s, p := samples[i*n:][:4], pix[3*i:][:3]
		white := 255 - int32(s[3])
		for k := range p {
			t := int32(s[k])*white + 128
			p[k] = byte(max(white-(t>>8+t)>>8, 0))
		}
	}
}

// divide divides the colours by the alpha that they were multiplied by. Where alpha is 0 they are black, as in Pillow.
func divide(pix, alpha []byte) {
	for i, a := range alpha {
		p := pix[3*i:][:3]
		switch a {
		case 0:
			p[0], p[1], p[2] = 0, 0, 0
		case 255:
		default:
			for k, v := range p {
				p[k] = byte(min(int(v)*255/int(a), 255))
			}
		}
	}
}

// narrow converts a row of one plane to a byte per sample: dst[0], dst[step] and so on. Samples of fewer than 8 bits
// keep their value.
func (h *Header) narrow(dst, row []byte, step int) {
	n := (len(dst) + step - 1) / step
	switch h.bits {
	case 8:
		for i := range n {
			dst[i*step] = row[i]
		}
	case 16:
		high := 0
		if h.order.order == binary.ByteOrder(binary.LittleEndian) {
			high = 1
		}
		for i := range n {
			dst[i*step] = row[2*i+high]
		}
	case 32:
		for i := range n {
			dst[i*step] = clipped(math.Float32frombits(h.order.order.Uint32(row[4*i:])))
		}
	default:
		mask := byte(1)<<h.bits - 1
		for i := range n {
			at := i * h.bits
			dst[i*step] = row[at/8] >> (8 - h.bits - at%8) & mask
		}
	}
}

// clipped converts a floating point sample to 8 bits as Pillow does: clamped, without its fraction. NaN is 0.
func clipped(v float32) byte {
	switch {
	case v >= 255:
		return 255
	case v > 0:
		return byte(v)
	}
	return 0
}

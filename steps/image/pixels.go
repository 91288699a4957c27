package image

import (
	"fmt"
	"image"
	"image/color"

	"tutti/core/tensor"
)

// samples is a picture in memory of ch samples a pixel (1 grey, 3 RGB, 4 RGB and alpha, which
// is dropped), row after row.
type samples struct {
	pix      []byte
	w, h, ch int
}

var _ image.Image = (*samples)(nil)

// ColorModel is that of 8-bit samples.
func (*samples) ColorModel() color.Model { return color.NRGBAModel }

// Bounds starts at 0, 0.
func (p *samples) Bounds() image.Rectangle { return image.Rect(0, 0, p.w, p.h) }

// At returns a pixel without its alpha.
func (p *samples) At(x, y int) color.Color {
	s := p.row(y)[x*p.ch:]
	if p.ch == 1 {
		return color.NRGBA{R: s[0], G: s[0], B: s[0], A: 255}
	}
	return color.NRGBA{R: s[0], G: s[1], B: s[2], A: 255}
}

func (p *samples) row(y int) []byte { return p.pix[y*p.w*p.ch:][:p.w*p.ch] }

// check refuses what is no picture; set has the shape of a tensor's rows.
func (p *samples) check(l limits) error {
	switch {
	case p.ch != 1 && p.ch != 3 && p.ch != 4:
		return fmt.Errorf("expected 1, 3 or 4 samples per pixel, found %d", p.ch)
	case p.w < 1 || p.h < 1:
		return fmt.Errorf("impossible size %d x %d", p.w, p.h)
	case p.w > maxSide || p.h > maxSide:
		return fmt.Errorf("expected sides of at most %d pixels, found %d x %d", maxSide, p.w, p.h)
	case int64(p.w)*int64(p.h) > l.maxPixels:
		return fmt.Errorf("expected at most %d pixels (max_pixels), found %d x %d = %d", l.maxPixels, p.w, p.h, p.w*p.h)
	}
	return nil
}

// shape takes the size from a tensor [H,W,C], or [B,H,W,C] when there are batches.
func (p *samples) shape(s tensor.Shape, batched bool) {
	at := 0
	if batched {
		at = 1
	}
	p.h, p.w, p.ch = int(s.Dim(at)), int(s.Dim(at+1)), int(s.Dim(at+2))
}

package image

import (
	"fmt"

	"github.com/tutti-server/tutti/core/tensor"
)

// samples is a picture that a tensor holds: ch samples a pixel (1 grey, 3 RGB, 4 RGB
// and alpha, which is dropped), row after row.
type samples struct {
	pix      []byte
	w, h, ch int
}

var _ picture = (*samples)(nil)

// Size is part of picture.
func (p *samples) Size() (width, height int) { return p.w, p.h }

// Gray is part of picture.
func (p *samples) Gray() bool { return p.ch == 1 }

// Row is part of picture.
func (p *samples) Row(dst []byte, y int) {
	src := p.pix[y*p.w*p.ch:][:p.w*p.ch]
	if p.ch == 4 {
		pick(dst[:3*p.w], src, 4, 1, 2)
		return
	}
	copy(dst, src)
}

// row makes samples a picture in memory.
func (p *samples) row(y int) []byte {
	if p.ch == 4 {
		return nil
	}
	return p.pix[y*p.w*p.ch:][:p.w*p.ch]
}

// check refuses what is no picture.
func (p *samples) check(maxPixels int64) error {
	switch {
	case p.ch != 1 && p.ch != 3 && p.ch != 4:
		return fmt.Errorf("expected 1, 3 or 4 samples per pixel, found %d", p.ch)
	case p.w < 1 || p.h < 1:
		return fmt.Errorf("impossible size %d x %d", p.w, p.h)
	case p.w > maxSide || p.h > maxSide:
		return fmt.Errorf("expected sides of at most %d pixels, found %d x %d", maxSide, p.w, p.h)
	case int64(p.w)*int64(p.h) > maxPixels:
		return fmt.Errorf("expected at most %d pixels (max_pixels), found %d x %d = %d", maxPixels, p.w, p.h, p.w*p.h)
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

package raster

// Transparent is an Image with an alpha channel. AlphaRow may be called only where Opaque is
// false.
type Transparent interface {
	Image
	// AlphaRow writes the alpha of row y, one sample per pixel.
	AlphaRow(dst []byte, y int)
	// Opaque reports whether every pixel is opaque.
	Opaque() bool
}

// Blended is an image laid over a background colour. It has three samples per pixel.
type Blended struct {
	Src        Transparent
	Background [3]byte
	alpha      []byte
}

// Size implements Image.
func (b *Blended) Size() (width, height int) { return b.Src.Size() }

// Gray implements Image.
func (*Blended) Gray() bool { return false }

// Row implements Image. It rounds as Pillow's paste with a mask does (MULDIV255).
func (b *Blended) Row(dst []byte, y int) {
	b.Src.Row(dst, y)
	w, _ := b.Src.Size()
	b.alpha = Sized(b.alpha, w)
	b.Src.AlphaRow(b.alpha, y)
	for i, a := range b.alpha {
		if a == 255 {
			continue
		}
		p := dst[3*i : 3*i+3 : 3*i+3]
		for j, v := range p {
			t := uint32(v)*uint32(a) + uint32(b.Background[j])*uint32(255-a) + 128
			p[j] = byte((t>>8 + t) >> 8)
		}
	}
}

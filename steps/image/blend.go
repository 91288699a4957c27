package image

// seeThrough is a picture that knows its alpha.
type seeThrough interface {
	picture
	alphaRow(dst []byte, y int)
	opaque() bool
}

// blended is a picture laid over a colour.
type blended struct {
	src   seeThrough
	over  [3]byte
	alpha []byte
}

// Size is part of picture.
func (b *blended) Size() (width, height int) { return b.src.Size() }

// Gray is part of picture.
func (*blended) Gray() bool { return false }

// Row is part of picture. The rounding is that of Pillow's paste with a mask.
func (b *blended) Row(dst []byte, y int) {
	b.src.Row(dst, y)
	w, _ := b.src.Size()
	b.alpha = resized(b.alpha, w)
	b.src.alphaRow(b.alpha, y)
	for i, a := range b.alpha {
		if a == 255 {
			continue
		}
		p := dst[3*i : 3*i+3 : 3*i+3]
		for j, v := range p {
			t := uint32(v)*uint32(a) + uint32(b.over[j])*uint32(255-a) + 128
			p[j] = byte((t>>8 + t) >> 8)
		}
	}
}

// alphaRow makes packed a picture with alpha.
func (p *packed) alphaRow(dst []byte, y int) { copy(dst, p.alpha[y*p.w:][:p.w]) }

func (p *packed) opaque() bool { return p.alpha == nil }

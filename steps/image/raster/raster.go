// Package raster holds images of 8-bit samples that are read row by row: from a decoder, from
// memory, turned, laid over a background, or converted to another colour space.
package raster

import "slices"

// Image is a decoded image. Pixels have one sample (grey) or three (red, green, blue), row
// after row from the top.
//
// An Image is valid until its owner, a decoder or a caller's scratch memory, is used for
// the next one. It is not safe for concurrent use: reading a row may use scratch memory.
// Rows may be read in any order and more than once.
//
// For example, a grey image of 3 x 2 pixels:
//
//	w, h := img.Size()       // 3, 2
//	line := make([]byte, w)  // 3*w if img.Gray() is false
//	img.Row(line, h-1)       // the bottom row
type Image interface {
	// Size returns width and height in pixels, as the image is shown.
	Size() (width, height int)
	// Gray reports whether a pixel has one sample.
	Gray() bool
	// Row writes row y, from 0, into dst, which must have room for it.
	Row(dst []byte, y int)
}

// Lines is an Image that has rows in memory. Line returns row y, borrowed, or nil where
// that row is not stored as Row writes it.
type Lines interface{ Line(y int) []byte }

// Sized returns s with n elements, grown if needed. The contents are unspecified.
func Sized[T any](s []T, n int) []T { return slices.Grow(s[:0], n)[:n] }

// Packed is an Image that is in memory as a whole. The zero value is ready for Reset.
type Packed struct {
	Pix []byte
	// Alpha has one sample per pixel, 0 for transparent; nil where all pixels are opaque.
	Alpha []byte
	w, h  int
	gray  bool
	spare []byte // the memory of Alpha, for the next image
}

var _ Transparent = (*Packed)(nil)

// Reset sets the size and makes all pixels opaque. The samples are unspecified.
func (p *Packed) Reset(w, h int, gray bool) {
	p.w, p.h, p.gray, p.Alpha = w, h, gray, nil
	p.Pix = Sized(p.Pix, w*h*p.channels())
}

// AddAlpha allocates Alpha; the contents are unspecified.
func (p *Packed) AddAlpha() {
	p.spare = Sized(p.spare, p.w*p.h)
	p.Alpha = p.spare
}

func (p *Packed) channels() int {
	if p.gray {
		return 1
	}
	return 3
}

// Size implements Image.
func (p *Packed) Size() (width, height int) { return p.w, p.h }

// Gray implements Image.
func (p *Packed) Gray() bool { return p.gray }

// Row implements Image.
func (p *Packed) Row(dst []byte, y int) { copy(dst, p.Line(y)) }

// Line implements Lines.
func (p *Packed) Line(y int) []byte {
	n := p.w * p.channels()
	return p.Pix[y*n:][:n]
}

// AlphaRow implements Transparent.
func (p *Packed) AlphaRow(dst []byte, y int) { copy(dst, p.Alpha[y*p.w:][:p.w]) }

// Opaque implements Transparent.
func (p *Packed) Opaque() bool { return p.Alpha == nil }

// Turn sets p to the image src, turned as an EXIF orientation of 2 to 8 says. line is
// scratch memory.
func (p *Packed) Turn(src Image, orientation uint8, line *[]byte) {
	w, h := src.Size()
	if orientation >= 5 {
		p.Reset(h, w, src.Gray())
	} else {
		p.Reset(w, h, src.Gray())
	}
	ch := p.channels()
	*line = Sized(*line, w*ch)
	for y := range h {
		src.Row(*line, y)
		at, step := turned(orientation, w, h, y)
		if ch == 1 {
			for _, v := range *line {
				p.Pix[at] = v
				at += step
			}
			continue
		}
		for s := *line; len(s) >= 3; s = s[3:] {
			d := p.Pix[3*at : 3*at+3 : 3*at+3]
			d[0], d[1], d[2] = s[0], s[1], s[2]
			at += step
		}
	}
}

// turned returns the index of the pixel that the first pixel of row y moves to, and the
// distance from there to the next pixel of the row. w and h are the size before.
func turned(orientation uint8, w, h, y int) (first, step int) {
	switch orientation {
	case 2: // mirrored left to right
		return y*w + w - 1, -1
	case 3: // turned by 180 degrees
		return (h-1-y)*w + w - 1, -1
	case 4: // mirrored top to bottom
		return (h - 1 - y) * w, 1
	case 5: // transposed
		return y, h
	case 6: // turned by 90 degrees to the right
		return h - 1 - y, h
	case 7: // transposed along the other diagonal
		return (w-1)*h + h - 1 - y, -h
	case 8: // turned by 90 degrees to the left
		return (w-1)*h + y, -h
	}
	return y * w, 1
}

// Pixels is an Image whose samples are those of a tensor: Channels samples per pixel (1
// grey, 3 RGB, 4 RGB and alpha, which is dropped), row after row. Pix is borrowed.
type Pixels struct {
	Pix            []byte
	W, H, Channels int
}

// Size implements Image.
func (p *Pixels) Size() (width, height int) { return p.W, p.H }

// Gray implements Image.
func (p *Pixels) Gray() bool { return p.Channels == 1 }

// Row implements Image.
func (p *Pixels) Row(dst []byte, y int) {
	src := p.Pix[y*p.W*p.Channels:][:p.W*p.Channels]
	if p.Channels == 4 {
		Pick(dst[:3*p.W], src, 4, 1, 2)
		return
	}
	copy(dst, src)
}

// Line implements Lines.
func (p *Pixels) Line(y int) []byte {
	if p.Channels == 4 {
		return nil
	}
	return p.Pix[y*p.W*p.Channels:][:p.W*p.Channels]
}

// Pick copies three of every n bytes: the first, and those at offsets g and b.
func Pick(dst, src []byte, n, g, b int) {
	for len(dst) >= 3 && len(src) >= n {
		dst[0], dst[1], dst[2] = src[0], src[g], src[b]
		dst, src = dst[3:], src[n:]
	}
}

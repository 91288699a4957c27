// Package raster holds images of 8-bit samples that are read row by row: from a decoder, from
// memory, turned, laid over a background, or converted to another colour space.
package raster

import "slices"

// Image is a decoded image. Pixels have one sample (grey) or three (red, green, blue), row after row from the top.
//
// An Image is valid until its owner, a decoder or a caller's scratch memory, is used for the next one. It is not safe
// for concurrent use: reading a row may use scratch memory. Rows may be read in any order and more than once.
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

// Packed is an Image that is in memory as a whole, row after row. The zero value is ready for Reset; the pixels of a
// caller are borrowed.
type Packed struct {
	Pix            []byte
	W, H, Channels int    // Channels is the samples per pixel: 1 grey, 3 RGB, 4 RGB and alpha, which is dropped
	Alpha          []byte // Alpha has one sample per pixel, 0 for transparent; nil where all pixels are opaque
	spare          []byte // the memory of Alpha, for the next image
}

var _ Transparent = (*Packed)(nil)

// Reset sets the size and makes all pixels opaque. The samples are unspecified.
func (p *Packed) Reset(w, h int, gray bool) {
	p.W, p.H, p.Channels, p.Alpha = w, h, 3, nil
	if gray {
		p.Channels = 1
	}
	p.Pix = Sized(p.Pix, w*h*p.Channels)
}

// AddAlpha allocates Alpha; the contents are unspecified.
func (p *Packed) AddAlpha() {
	p.spare = Sized(p.spare, p.W*p.H)
	p.Alpha = p.spare
}

// Size implements Image.
func (p *Packed) Size() (width, height int) { return p.W, p.H }

// Gray implements Image.
func (p *Packed) Gray() bool { return p.Channels == 1 }

// Row implements Image.
func (p *Packed) Row(dst []byte, y int) {
	if p.Channels == 4 {
		Pick(dst[:3*p.W], p.Pix[y*p.W*4:][:p.W*4], 4, 1, 2)
		return
	}
	copy(dst, p.Line(y))
}

// Line implements Lines.
func (p *Packed) Line(y int) []byte {
	if p.Channels == 4 {
		return nil
	}
	return p.Pix[y*p.W*p.Channels:][:p.W*p.Channels]
}

// AlphaRow implements Transparent.
func (p *Packed) AlphaRow(dst []byte, y int) { copy(dst, p.Alpha[y*p.W:][:p.W]) }

// Opaque implements Transparent.
func (p *Packed) Opaque() bool { return p.Alpha == nil }

// Turn sets p to the image src, turned as an EXIF orientation of 2 to 8 says. line is scratch memory.
func (p *Packed) Turn(src Image, orientation uint8, line *[]byte) {
	w, h := src.Size()
	if orientation >= 5 {
		p.Reset(h, w, src.Gray())
	} else {
		p.Reset(w, h, src.Gray())
	}
	ch := p.Channels
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

// Pick copies three of every n bytes: the first, and those at offsets g and b.
func Pick(dst, src []byte, n, g, b int) {
	for len(dst) >= 3 && len(src) >= n {
		dst[0], dst[1], dst[2] = src[0], src[g], src[b]
		dst, src = dst[3:], src[n:]
	}
}

// Space is a colour space.
type Space uint8

// The colour spaces. BGR has the samples of RGB; their order is applied when the output is written.
const (
	RGB Space = iota
	BGR
	Gray
	YCbCr
)

// SpaceNames is indexed by Space.
var SpaceNames = []string{"rgb", "bgr", "gray", "ycbcr"}

// Channels returns the number of samples per pixel.
func (s Space) Channels() int {
	if s == Gray {
		return 1
	}
	return 3
}

// Order returns which sample of a pixel each output channel is.
func (s Space) Order() [3]int {
	if s == BGR {
		return [3]int{2, 1, 0}
	}
	return [3]int{0, 1, 2}
}

// Rows reads an Image as packed rows of a colour space: three samples per pixel, or one for
// Gray. Set points it at an image; its scratch memory is kept for the next one.
type Rows struct {
	W, H  int
	img   Image
	gray  bool
	ycc   bool   // YCbCr instead of RGB
	lines Lines  // img, where its rows need no conversion and may be in memory
	line  []byte // one row before its conversion
}

// Set points r at an image. With nil it drops the last one.
func (r *Rows) Set(img Image, to Space) {
	r.img, r.lines, r.gray, r.ycc = img, nil, to == Gray, to == YCbCr
	if img == nil {
		return
	}
	r.W, r.H = img.Size()
	if l, ok := img.(Lines); ok && !r.ycc && img.Gray() == r.gray {
		r.lines = l
	}
}

// Space returns Gray or RGB: the space that keeps the samples of r as they are.
func (r *Rows) Space() Space {
	if r.gray {
		return Gray
	}
	return RGB
}

// Channels returns the number of samples per pixel.
func (r *Rows) Channels() int { return r.Space().Channels() }

// Row writes row y, from 0 at the top, into dst, which has W*Channels() bytes.
func (r *Rows) Row(dst []byte, y int) {
	switch from := r.img.Gray(); {
	case from == r.gray:
		r.img.Row(dst, y)
		if r.ycc {
			toYCC(dst[:3*r.W])
		}
	case from:
		r.line = Sized(r.line, r.W)
		r.img.Row(r.line, y)
		for i, v := range r.line {
			p := dst[3*i : 3*i+3 : 3*i+3]
			if p[0], p[1], p[2] = v, v, v; r.ycc {
				p[1], p[2] = 128, 128
			}
		}
	default:
		r.line = Sized(r.line, 3*r.W)
		r.img.Row(r.line, y)
		toGray(dst[:r.W], r.line)
	}
}

// Peek returns row y, borrowed: the image's memory, or dst.
func (r *Rows) Peek(dst []byte, y int) []byte {
	if r.lines != nil {
		if p := r.lines.Line(y); p != nil {
			return p
		}
	}
	r.Row(dst, y)
	return dst
}

// toGray computes the luma of ITU-R BT.601 in 16-bit fixed point, as Pillow's L24 macro does.
func toGray(dst, rgb []byte) {
	for i := range dst {
		p := rgb[3*i : 3*i+3 : 3*i+3]
		dst[i] = byte((uint32(p[0])*19595 + uint32(p[1])*38470 + uint32(p[2])*7471 + 0x8000) >> 16)
	}
}

// yccTable holds what each value of R, G and B adds to Y, Cb and Cr, with 6 fraction bits.
// The numbers are those of Pillow's ConvertYCbCr.c, which rounds negative ones towards zero.
var yccTable = newYCCTable()

func newYCCTable() *[3][3][256]int16 {
	factors := [3][3]float64{{0.299, 0.587, 0.114}, {-0.16874, -0.33126, 0.5}, {0.5, -0.41869, -0.08131}}
	var t [3][3][256]int16
	for to := range t {
		for from := range t[to] {
			for v := range t[to][from] {
				t[to][from][v] = int16(float64(factors[to][from]*64*float64(v)) + 0.5)
			}
		}
	}
	return &t
}

// toYCC converts packed RGB to YCbCr in place, as Pillow does.
func toYCC(p []byte) {
	t := yccTable
	for ; len(p) >= 3; p = p[3:] {
		r, g, b := p[0], p[1], p[2]
		p[0] = byte((t[0][0][r] + t[0][1][g] + t[0][2][b]) >> 6)
		p[1] = byte((t[1][0][r]+t[1][1][g]+t[1][2][b])>>6 + 128)
		p[2] = byte((t[2][0][r]+t[2][1][g]+t[2][2][b])>>6 + 128)
	}
}

// Transparent is an Image with an alpha channel. AlphaRow may be called only where Opaque is false.
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

// AddBoxes adds each n pixels of a row to sums, of 1 or 3 samples per pixel; the last box may be smaller.
func AddBoxes(sums []uint32, line []byte, n, channels int) {
	if channels == 1 {
		for i := range sums {
			for _, v := range line[i*n : min((i+1)*n, len(line))] {
				sums[i] += uint32(v)
			}
		}
		return
	}
	for i := 0; i+3 <= len(sums); i += 3 {
		s := sums[i : i+3 : i+3]
		for p := line[i*n : min((i+3)*n, len(line))]; len(p) >= 3; p = p[3:] {
			s[0] += uint32(p[0])
			s[1] += uint32(p[1])
			s[2] += uint32(p[2])
		}
	}
}

// Dot1 returns the weighted sum of samples.
func Dot1[W int16 | int32](p []byte, w []W) (s int32) {
	p = p[:len(w)]
	for j, k := range w {
		s += int32(p[j]) * int32(k)
	}
	return s
}

// Dot3 is Dot1 for three samples per pixel.
func Dot3[W int16 | int32](p []byte, w []W) (s0, s1, s2 int32) {
	for len(w) >= 4 && len(p) >= 12 {
		q, k := (*[12]byte)(p), (*[4]W)(w)
		k0, k1, k2, k3 := int32(k[0]), int32(k[1]), int32(k[2]), int32(k[3])
		s0 += int32(q[0])*k0 + int32(q[3])*k1 + int32(q[6])*k2 + int32(q[9])*k3
		s1 += int32(q[1])*k0 + int32(q[4])*k1 + int32(q[7])*k2 + int32(q[10])*k3
		s2 += int32(q[2])*k0 + int32(q[5])*k1 + int32(q[8])*k2 + int32(q[11])*k3
		p, w = p[12:], w[4:]
	}
	for _, k := range w {
		if len(p) < 3 {
			break
		}
		s0 += int32(p[0]) * int32(k)
		s1 += int32(p[1]) * int32(k)
		s2 += int32(p[2]) * int32(k)
		p = p[3:]
	}
	return s0, s1, s2
}

// Package webp encodes lossless WebP (VP8L): green subtracted from red and blue, the
// better of four predictors for each block, matches of earlier pixels and Huffman codes.
package webp

import (
	"encoding/binary"
	"fmt"
)

// maxSide is the longest side that the format can hold.
const maxSide = 1 << 14

// Encoder encodes one image after another. It keeps its memory between them and is
// not safe for concurrent use. The zero value is ready.
type Encoder struct {
	w        writer
	width    int
	pixels   []uint32 // Alpha, red, green, blue.
	residual []uint32
	modes    []uint32
	tokens   []token
	heads    []int32
	codes    [5]code
	lengths  code
}

// Encode appends the file of a picture to dst. pix holds four bytes a pixel: red, green,
// blue and alpha, which is not multiplied in.
func (e *Encoder) Encode(dst, pix []byte, width, height int) ([]byte, error) {
	if width < 1 || height < 1 || width > maxSide || height > maxSide || len(pix) != 4*width*height {
		return dst, fmt.Errorf("expected 4 bytes a pixel and sides of 1 to %d, found %d bytes for %d x %d", maxSide, len(pix), width, height)
	}
	e.width = width
	alpha := e.subtractGreen(pix, width*height)
	start := len(dst)
	dst = append(dst, "RIFF\x00\x00\x00\x00WEBPVP8L\x00\x00\x00\x00"...)
	e.w = writer{out: dst}
	e.w.put(0x2f, 8)
	e.w.put(uint32(width-1), 14)
	e.w.put(uint32(height-1), 14)
	e.w.put(alpha, 1)
	e.w.put(0, 3)
	e.w.put(1|2<<1, 3) // A transform: green was subtracted.
	e.predict(height)
	e.w.put(1|0<<1|(blockBits-2)<<3, 6) // A transform: predictors, by blocks.
	e.image(e.modes, (width+1<<blockBits-1)>>blockBits, false)
	e.w.put(0, 1) // No more transforms.
	e.image(e.residual, width, true)
	dst = e.w.flush()
	n := len(dst) - start
	binary.LittleEndian.PutUint32(dst[start+16:], uint32(n-20))
	if n&1 == 1 {
		dst = append(dst, 0)
		n++
	}
	binary.LittleEndian.PutUint32(dst[start+4:], uint32(n-8))
	return dst, nil
}

// subtractGreen reads the pixels and tells whether one is not opaque.
func (e *Encoder) subtractGreen(pix []byte, n int) (alpha uint32) {
	e.pixels = sized(e.pixels, n)
	for i := range e.pixels {
		p := pix[4*i : 4*i+4 : 4*i+4]
		g := p[1]
		e.pixels[i] = uint32(p[3])<<24 | uint32(p[0]-g)<<16 | uint32(g)<<8 | uint32(p[2]-g)
		if p[3] != 255 {
			alpha = 1
		}
	}
	return alpha
}

// image writes pixels with codes of their own. The main image says besides that it has
// one set of codes for all of it.
func (e *Encoder) image(pixels []uint32, width int, main bool) {
	e.w.put(0, 1) // No colour cache.
	if main {
		e.w.put(0, 1)
	}
	e.match(pixels, width)
	e.count(pixels)
	for i := range e.codes {
		e.codes[i].build(15)
		e.writeCode(&e.codes[i])
	}
	at := 0
	for _, t := range e.tokens {
		at = e.token(pixels, at, t)
	}
}

// token writes one token and returns the pixel after it.
func (e *Encoder) token(pixels []uint32, at int, t token) int {
	if t.length == 0 {
		v := pixels[at]
		e.symbol(0, v>>8&255)
		e.symbol(1, v>>16&255)
		e.symbol(2, v&255)
		e.symbol(3, v>>24)
		return at + 1
	}
	p, n, extra := prefix(t.length)
	e.symbol(0, 256+p)
	e.w.put(extra, n)
	p, n, extra = prefix(t.distance)
	e.symbol(4, p)
	e.w.put(extra, n)
	return at + int(t.length)
}

func (e *Encoder) symbol(code int, s uint32) {
	c := &e.codes[code]
	e.w.put(uint32(c.bits[s]), uint(c.size[s]))
}

// count counts the symbols of the tokens.
func (e *Encoder) count(pixels []uint32) {
	for i, n := range [...]int{256 + 24, 256, 256, 256, 40} {
		e.codes[i].reset(n)
	}
	at := 0
	for _, t := range e.tokens {
		if t.length == 0 {
			v := pixels[at]
			e.codes[0].counts[v>>8&255]++
			e.codes[1].counts[v>>16&255]++
			e.codes[2].counts[v&255]++
			e.codes[3].counts[v>>24]++
			at++
			continue
		}
		p, _, _ := prefix(t.length)
		e.codes[0].counts[256+p]++
		p, _, _ = prefix(t.distance)
		e.codes[4].counts[p]++
		at += int(t.length)
	}
}

// sized gives s with n elements, its contents unspecified.
func sized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

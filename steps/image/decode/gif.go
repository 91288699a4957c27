package decode

import (
	"compress/lzw"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/tutti-server/tutti/steps/image/raster"
)

// gif reads the container of a GIF file up to its first frame; compress/lzw unpacks the pixels. image/gif is not used:
// it drops the colour of the transparent index, which Pillow keeps, and refuses files that Pillow reads.
type gif struct {
	width, height int
	palette       []byte
	transparent   int // the index of the transparent colour, or -1
	frame         struct{ x, y, w, h int }
	interlaced    bool
	data          []byte // of the frame, from the code size on
	gifScratch
}

// gifScratch is memory that is kept for the next file.
type gifScratch struct {
	index  []byte
	blocks subBlocks
	lzw    lzw.Reader
	full   [3 * 256]byte // the palette, filled up to 256 colours
}

// forget drops the references to the file.
func (g *gif) forget() { g.palette, g.data, g.blocks.data = nil, nil, nil }

func gifHeader(data []byte) (Header, error) {
	if len(data) < 13 {
		return Header{}, errTruncated
	}
	w, t := int(binary.LittleEndian.Uint16(data[6:])), int(binary.LittleEndian.Uint16(data[8:]))
	if w == 0 || t == 0 {
		return Header{}, fmt.Errorf("impossible size %d x %d", w, t)
	}
	return Header{format: formatGIF, width: w, height: t}, nil
}

// read parses the file up to the pixels of the first frame.
func (g *gif) read(data []byte) error {
	g.transparent, g.interlaced, g.data = -1, false, nil
	g.width, g.height = int(binary.LittleEndian.Uint16(data[6:])), int(binary.LittleEndian.Uint16(data[8:]))
	rest := data[13:]
	var err error
	if g.palette, rest, err = gifPalette(data[10], rest); err != nil {
		return err
	}
	for len(rest) >= 2 {
		switch rest[0] {
		case ',':
			return g.readFrame(rest[1:])
		case '!':
			if rest[1] == 0xf9 && len(rest) >= 7 && rest[2] == 4 && rest[3]&1 != 0 {
				g.transparent = int(rest[6])
			}
			if rest = gifBlocks(rest[2:]); rest == nil {
				return io.ErrUnexpectedEOF
			}
		case 0:
			rest = rest[1:]
		default:
			return fmt.Errorf("no frame, found block 0x%02x", rest[0])
		}
	}
	return errors.New("no frame")
}

func gifPalette(flags byte, rest []byte) (palette, after []byte, err error) {
	if flags&0x80 == 0 {
		return nil, rest, nil
	}
	n := 3 * (2 << (flags & 7))
	if len(rest) < n {
		return nil, nil, io.ErrUnexpectedEOF
	}
	return rest[:n], rest[n:], nil
}

// gifBlocks returns the bytes after a run of sub-blocks, or nil if the run has no end.
func gifBlocks(data []byte) []byte {
	for len(data) > 0 {
		n := int(data[0])
		if n == 0 {
			return data[1:]
		}
		if 1+n > len(data) {
			break
		}
		data = data[1+n:]
	}
	return nil
}

func (g *gif) readFrame(p []byte) error {
	if len(p) < 9 {
		return io.ErrUnexpectedEOF
	}
	f := &g.frame
	f.x, f.y = int(binary.LittleEndian.Uint16(p)), int(binary.LittleEndian.Uint16(p[2:]))
	f.w, f.h = int(binary.LittleEndian.Uint16(p[4:])), int(binary.LittleEndian.Uint16(p[6:]))
	if f.x+f.w > g.width || f.y+f.h > g.height {
		return fmt.Errorf("frame of %d x %d at %d, %d leaves the canvas of %d x %d", f.w, f.h, f.x, f.y, g.width, g.height)
	}
	g.interlaced = p[8]&0x40 != 0
	local, rest, err := gifPalette(p[8], p[9:])
	if local != nil {
		g.palette = local
	}
	g.data = rest
	return err
}

// indices unpacks the palette indices of the frame. Bytes after the last pixel are ignored.
func (g *gif) indices() ([]byte, error) {
	if len(g.data) == 0 {
		return nil, io.ErrUnexpectedEOF
	}
	if g.data[0] < 2 || g.data[0] > 8 {
		return nil, fmt.Errorf("impossible code size %d", g.data[0])
	}
	g.blocks = subBlocks{data: g.data[1:]}
	g.lzw.Reset(&g.blocks, lzw.LSB, int(g.data[0]))
	g.index = raster.Sized(g.index, g.frame.w*g.frame.h)
	_, err := io.ReadFull(&g.lzw, g.index)
	return g.index, err
}

// subBlocks is a reader of the bytes in a run of sub-blocks: a length of 1 to 255 and as many
// bytes each, ended by a length of 0.
type subBlocks struct {
	io.Reader // nil: package lzw reads bytes only

	data []byte
	left int
}

// ReadByte implements io.ByteReader, which package lzw uses.
func (s *subBlocks) ReadByte() (byte, error) {
	if s.left == 0 {
		if len(s.data) == 0 || s.data[0] == 0 {
			return 0, io.EOF
		}
		s.left = int(s.data[0])
		s.data = s.data[1:]
	}
	if len(s.data) == 0 {
		return 0, io.ErrUnexpectedEOF
	}
	v := s.data[0]
	s.data = s.data[1:]
	s.left--
	return v, nil
}

// decode draws the first frame on its canvas, as Pillow does: pixels outside of the frame have
// the transparent colour, or colour 0 if there is none.
func (g *gif) decode(p *raster.Packed, data []byte) error {
	if err := g.read(data); err != nil {
		return err
	}
	index, err := g.indices()
	if err != nil {
		return err
	}
	// As in Pillow a file without a palette is grey, and an index beyond the palette is black.
	if n := copy(g.full[:], g.palette); n > 0 {
		clear(g.full[n:])
	} else {
		for i := range g.full {
			g.full[i] = byte(i / 3)
		}
	}
	p.Reset(g.width, g.height, false)
	if g.transparent >= 0 {
		p.AddAlpha()
	}
	for at := range g.width * g.height {
		g.put(p, at, max(g.transparent, 0))
	}
	for i := range g.frame.h {
		y := g.line(i)
		for x, v := range index[i*g.frame.w:][:g.frame.w] {
			g.put(p, (g.frame.y+y)*g.width+g.frame.x+x, int(v))
		}
	}
	return nil
}

func (g *gif) put(p *raster.Packed, at, index int) {
	copy(p.Pix[3*at:3*at+3], g.full[3*index:])
	if p.Alpha != nil {
		p.Alpha[at] = 255
		if index == g.transparent {
			p.Alpha[at] = 0
		}
	}
}

// line returns the row of the frame that the i-th row of the file is.
func (g *gif) line(i int) int {
	if !g.interlaced {
		return i
	}
	h := g.frame.h
	for _, pass := range [...]struct{ start, step int }{{0, 8}, {4, 8}, {2, 4}, {1, 2}} {
		n := max((h-pass.start+pass.step-1)/pass.step, 0)
		if i < n {
			return pass.start + i*pass.step
		}
		i -= n
	}
	return h - 1
}

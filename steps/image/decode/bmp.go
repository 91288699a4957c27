package decode

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"github.com/tutti-server/tutti/steps/image/raster"
)

// bmp is the header of a Windows or OS/2 bitmap. golang.org/x/image/bmp is not used: it refuses
// run lengths, 16 bits per pixel, colour masks and OS/2 headers.
type bmp struct {
	width, height int
	up            bool // the first row of the file is the bottom row
	depth         int
	compression   uint32
	palette       []byte    // blue, green, red and perhaps a fourth byte
	entry         int       // bytes per colour of the palette: 3 or 4
	masks         [4]uint32 // of red, green, blue and alpha
	pixels        []byte
}

// errPixels is the error of a file whose pixels end early.
var errPixels = errors.New("truncated")

const (
	bmpPlain  = 0
	bmpRLE8   = 1
	bmpRLE4   = 2
	bmpFields = 3
	bmpAlpha  = 6
)

func bmpHeader(data []byte) (Header, error) {
	b, err := readBMP(data)
	if err != nil {
		return Header{}, err
	}
	h := Header{format: formatBMP, width: b.width, height: b.height}
	if b.compression != bmpRLE4 && b.compression != bmpRLE8 {
		h.least = int64(len(data)-len(b.pixels)) + int64(b.stride())*int64(b.height-1) + int64(b.width*b.depth+7)/8
	}
	return h, nil
}

// readBMP reads the header. The pixels may be truncated.
func readBMP(data []byte) (b bmp, err error) {
	if len(data) < 26 {
		return b, errTruncated
	}
	le := binary.LittleEndian
	start, size := int64(le.Uint32(data[10:])), int64(le.Uint32(data[14:]))
	b = bmp{up: true, entry: 4}
	info := data[14:]
	if size > int64(len(info)) {
		return b, errTruncated
	}
	colours := uint32(0)
	switch {
	case size == 12:
		b.width, b.height, b.depth = int(le.Uint16(info[4:])), int(le.Uint16(info[6:])), int(le.Uint16(info[10:]))
		b.entry = 3
	case size >= 40:
		b.width, b.height, b.depth = int(int32(le.Uint32(info[4:]))), int(int32(le.Uint32(info[8:]))), int(le.Uint16(info[14:]))
		b.compression, colours = le.Uint32(info[16:]), le.Uint32(info[32:])
	default:
		return b, fmt.Errorf("unsupported BMP header of %d bytes", size)
	}
	if b.height < 0 {
		b.up, b.height = false, -b.height
	}
	if b.width <= 0 || b.height == 0 {
		return b, fmt.Errorf("impossible size %d x %d", b.width, b.height)
	}
	rest, err := b.readMasks(info[size:], info[:size])
	if err != nil {
		return b, err
	}
	if err := b.readPalette(rest, colours); err != nil {
		return b, err
	}
	if start < 14+size || start > int64(len(data)) {
		return b, errors.New("no pixels where the header says")
	}
	b.pixels = data[start:]
	return b, nil
}

// readMasks reads the bits that each colour has in pixels of 16 and 32 bits. It returns the bytes after the masks.
func (b *bmp) readMasks(after, info []byte) ([]byte, error) {
	switch b.compression {
	case bmpPlain:
		switch b.depth {
		case 16:
			b.masks = [4]uint32{0x7c00, 0x3e0, 0x1f}
		case 24, 32:
			b.masks = [4]uint32{0xff0000, 0xff00, 0xff}
		}
		return after, nil
	case bmpFields, bmpAlpha:
		if b.depth != 16 && b.depth != 32 {
			return nil, fmt.Errorf("colour masks at %d bits per pixel, expected 16 or 32", b.depth)
		}
		from, n := info[min(40, len(info)):], len(info)/56*4+3*(1-len(info)/56)
		if len(info) < 52 {
			if n = 3; b.compression == bmpAlpha {
				n = 4
			}
			from = after
			if len(after) < 4*n {
				return nil, errTruncated
			}
			after = after[4*n:]
		}
		n = min(n, 4, len(from)/4)
		for i := range n {
			b.masks[i] = binary.LittleEndian.Uint32(from[4*i:])
		}
		return after, nil
	case bmpRLE4, bmpRLE8:
		if b.depth != 4 && b.compression == bmpRLE4 || b.depth != 8 && b.compression == bmpRLE8 {
			return nil, fmt.Errorf("run lengths at %d bits per pixel", b.depth)
		}
		return after, nil
	}
	return nil, fmt.Errorf("unsupported BMP compression %d", b.compression)
}

func (b *bmp) readPalette(rest []byte, colours uint32) error {
	switch b.depth {
	case 16, 24, 32:
		return nil
	case 1, 2, 4, 8:
	default:
		return fmt.Errorf("unsupported BMP of %d bits per pixel", b.depth)
	}
	if colours == 0 || colours > 1<<b.depth {
		colours = 1 << b.depth
	}
	b.palette = rest[:min(int(colours), len(rest)/b.entry)*b.entry]
	return nil
}

// stride returns the bytes of a row in the file.
func (b *bmp) stride() int { return (b.width*b.depth + 31) / 32 * 4 }

// decodeBMP decodes a bitmap whose header was checked. scratch is memory for run lengths.
func decodeBMP(p *raster.Packed, data []byte, scratch *[]byte) error {
	b, err := readBMP(data)
	if err != nil {
		return err
	}
	p.Reset(b.width, b.height, false)
	if b.masks[3] != 0 {
		p.AddAlpha()
	}
	if b.compression == bmpRLE4 || b.compression == bmpRLE8 {
		return b.runs(p, scratch)
	}
	fields := b.fields()
	for i := range b.height {
		at := i * b.stride()
		if at+(b.width*b.depth+7)/8 > len(b.pixels) {
			return errPixels
		}
		b.line(p, b.row(i), b.pixels[at:], &fields)
	}
	return nil
}

// row returns the row of the image that the i-th row of the file is.
func (b *bmp) row(i int) int {
	if b.up {
		return b.height - 1 - i
	}
	return i
}

// line converts row y.
func (b *bmp) line(p *raster.Packed, y int, src []byte, f *[4]field) {
	dst := p.Line(y)
	switch b.depth {
	case 24:
		for x := range b.width {
			dst[3*x], dst[3*x+1], dst[3*x+2] = src[3*x+2], src[3*x+1], src[3*x]
		}
	case 16, 32:
		for x := range b.width {
			v := uint32(binary.LittleEndian.Uint16(src[x*b.depth/8:]))
			if b.depth == 32 {
				v = binary.LittleEndian.Uint32(src[4*x:])
			}
			dst[3*x], dst[3*x+1], dst[3*x+2] = f[0].of(v), f[1].of(v), f[2].of(v)
			if p.Alpha != nil {
				p.Alpha[y*b.width+x] = f[3].of(v)
			}
		}
	default:
		for x := range b.width {
			bit := x * b.depth
			v := src[bit/8] >> (8 - b.depth - bit%8) & (1<<b.depth - 1)
			b.color(dst[3*x:3*x+3], int(v))
		}
	}
}

// color writes a colour of the palette. An index beyond it is black.
func (b *bmp) color(dst []byte, index int) {
	clear(dst)
	if e := b.entry * index; e+3 <= len(b.palette) {
		dst[0], dst[1], dst[2] = b.palette[e+2], b.palette[e+1], b.palette[e]
	}
}

// field is the position of a colour in a pixel.
type field struct {
	shift int
	most  uint32
}

func (b *bmp) fields() [4]field {
	var out [4]field
	for i, m := range b.masks {
		if m != 0 {
			shift := bits.TrailingZeros32(m)
			out[i] = field{shift, m >> shift}
		}
	}
	return out
}

// of returns the colour of a pixel, scaled to 8 bits and rounded down. For example, 31 of 5 bits is 255.
func (f field) of(v uint32) byte {
	if f.most == 0 {
		return 0
	}
	if f.most == 255 {
		return byte(v >> f.shift)
	}
	return byte(uint64(v>>f.shift&f.most) * 255 / uint64(f.most))
}

// runs decodes run lengths of 8 or 4 bits per pixel. A count above 0 is followed by the value
// to repeat. A count of 0 is followed by a code: 0 ends the line, 1 ends the image, 2 moves
// right and up, and a larger one is a number of values that follow.
func (b *bmp) runs(p *raster.Packed, scratch *[]byte) error {
	*scratch = raster.Sized(*scratch, b.width*b.height)
	index := *scratch
	clear(index)
	x, y, src := 0, 0, b.pixels
	for y < b.height {
		if len(src) < 2 {
			return errPixels
		}
		pair, n, v := src[:2], int(src[0]), src[1]
		src = src[2:]
		switch {
		case n > 0:
			x = b.put(index, x, y, n, pair[1:], true)
		case v == 0:
			x, y = 0, y+1
		case v == 1:
			y = b.height
		case v == 2:
			if len(src) < 2 {
				return errPixels
			}
			x, y = min(x+int(src[0]), b.width), y+int(src[1])
			src = src[2:]
		default:
			used := (int(v)*b.depth + 7) / 8
			if padded := used + used&1; len(src) < padded {
				return errPixels
			}
			x = b.put(index, x, y, int(v), src, false)
			src = src[used+used&1:]
		}
	}
	for i := range b.height {
		dst := p.Line(b.row(i))
		for x, v := range index[i*b.width:][:b.width] {
			b.color(dst[3*x:3*x+3], int(v))
		}
	}
	return nil
}

// put writes n pixels that are stored one by one or, with repeat, one value or at 4 bits two that alternate. It returns the
// next column.
func (b *bmp) put(index []byte, x, y, n int, src []byte, repeat bool) int {
	line := index[y*b.width:][:b.width]
	for i := range min(n, b.width-x) {
		at := i * b.depth / 8
		if repeat {
			at = 0
		}
		line[x+i] = src[at]
		if b.depth == 4 {
			line[x+i] = src[at] >> (4 * (1 - i&1)) & 15
		}
	}
	return min(x+n, b.width)
}

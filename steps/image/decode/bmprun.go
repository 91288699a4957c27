package decode

import (
	"errors"

	"github.com/tutti-server/tutti/steps/image/raster"
)

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
			return errors.New("truncated")
		}
		n, v := int(src[0]), src[1]
		src = src[2:]
		switch {
		case n > 0:
			x = b.repeat(index, x, y, n, v)
		case v == 0:
			x, y = 0, y+1
		case v == 1:
			y = b.height
		case v == 2:
			if len(src) < 2 {
				return errors.New("truncated")
			}
			x, y = min(x+int(src[0]), b.width), y+int(src[1])
			src = src[2:]
		default:
			used := (int(v)*b.depth + 7) / 8
			if padded := used + used&1; len(src) < padded {
				return errors.New("truncated")
			}
			x = b.literal(index, x, y, int(v), src)
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

// repeat writes n pixels of one value, or at 4 bits of two values that alternate. It returns
// the next column.
func (b *bmp) repeat(index []byte, x, y, n int, v byte) int {
	line := index[y*b.width:][:b.width]
	for i := range min(n, b.width-x) {
		line[x+i] = v
		if b.depth == 4 {
			line[x+i] = v >> (4 * (1 - i&1)) & 15
		}
	}
	return min(x+n, b.width)
}

// literal writes n pixels that are stored one by one. It returns the next column.
func (b *bmp) literal(index []byte, x, y, n int, src []byte) int {
	line := index[y*b.width:][:b.width]
	for i := range min(n, b.width-x) {
		if b.depth == 4 {
			line[x+i] = src[i/2] >> (4 * (1 - i&1)) & 15
		} else {
			line[x+i] = src[i]
		}
	}
	return min(x+n, b.width)
}

package jpeg

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// component is one colour component of the frame.
type component struct {
	id      byte
	h, v    int // sampling factors
	quant   int // index of the quantisation table
	size    int // samples across a block in the output: 8, or less when reduced
	wide    int // blocks across in a scan of this component alone
	tall    int // blocks down in such a scan
	blocks  int // blocks across in memory, in whole units
	rows    int // blocks down in memory
	w, hi   int // samples of the plane that belong to the image
	hx, vx  int // times that a sample repeats across and down at full size
	stride  int
	plane   []byte
	coefs   []int16  // 64 per block: of all blocks if progressive, else of a row of units
	sets    []uint64 // progressive: a bit per coefficient of each block that is not zero
	dc, ac  *table
	predict int32
	seen    bool // a scan has coded its first bits
}

// frame is the content of the frame header.
type frame struct {
	width, height int
	progressive   bool
	comps         [4]component
	n             int
	maxH, maxV    int
	unitsX        int // units across and down
	unitsY        int
	outW, outH    int
}

var errFrame = errors.New("damaged frame header")

// readFrame parses the segment of a frame header.
func (d *Decoder) readFrame(seg []byte, progressive bool) error {
	f := &d.frame
	if f.n != 0 {
		return errors.New("more than one frame header")
	}
	if len(seg) < 6 || len(seg) != 6+3*int(seg[5]) {
		return errFrame
	}
	if seg[0] != 8 {
		return fmt.Errorf("unsupported JPEG of %d bits per sample, expected 8", seg[0])
	}
	f.progressive = progressive
	f.height, f.width = int(binary.BigEndian.Uint16(seg[1:])), int(binary.BigEndian.Uint16(seg[3:]))
	if f.width == 0 || f.height == 0 {
		return fmt.Errorf("impossible size %d x %d", f.width, f.height)
	}
	if px := int64(f.width) * int64(f.height); d.MaxPixels > 0 && px > d.MaxPixels {
		return fmt.Errorf("expected at most %d pixels, found %d x %d = %d", d.MaxPixels, f.width, f.height, px)
	}
	n := int(seg[5])
	if n != 1 && n != 3 && n != 4 {
		return fmt.Errorf("unsupported JPEG of %d components, expected 1, 3 or 4", n)
	}
	for i := range n {
		p, c := seg[6+3*i:], &f.comps[i]
		c.id, c.h, c.v, c.quant = p[0], int(p[1]>>4), int(p[1]&15), int(p[2])
		if c.h < 1 || c.h > 4 || c.v < 1 || c.v > 4 || c.quant > 3 {
			return errFrame
		}
		for j := range i {
			if f.comps[j].id == c.id {
				return errFrame
			}
		}
		f.maxH, f.maxV = max(f.maxH, c.h), max(f.maxV, c.v)
	}
	f.n = n
	return d.layOut()
}

func ceil(a, b int) int { return (a + b - 1) / b }

// layOut computes sizes and allocates memory. In a reduced image a subsampled component keeps more
// of its samples, as in libjpeg, so that fewer are repeated.
func (d *Decoder) layOut() error {
	f := &d.frame
	least := 8 / d.scale
	f.unitsX, f.unitsY = ceil(f.width, 8*f.maxH), ceil(f.height, 8*f.maxV)
	f.outW, f.outH = ceil(f.width*least, 8), ceil(f.height*least, 8)
	for i := range f.comps[:f.n] {
		c := &f.comps[i]
		c.size = least
		for c.size < 8 && f.maxH*least%(c.h*c.size*2) == 0 && f.maxV*least%(c.v*c.size*2) == 0 {
			c.size *= 2
		}
		inH, inV := c.h*c.size, c.v*c.size
		if f.maxH*least%inH != 0 || f.maxV*least%inV != 0 {
			return fmt.Errorf("unsupported JPEG of sampling factors %d x %d under %d x %d", c.h, c.v, f.maxH, f.maxV)
		}
		c.hx, c.vx = f.maxH*least/inH, f.maxV*least/inV
		c.wide, c.tall = ceil(f.width*c.h, 8*f.maxH), ceil(f.height*c.v, 8*f.maxV)
		c.w, c.hi = ceil(f.width*inH, 8*f.maxH), ceil(f.height*inV, 8*f.maxV)
		c.blocks, c.rows = f.unitsX*c.h, f.unitsY*c.v
		c.stride = c.blocks * c.size
		c.plane = sized(&d.planes[i], c.stride*c.rows*c.size)
		if f.progressive {
			c.coefs = sized(&d.coefs[i], 64*c.blocks*c.rows)
			clear(c.coefs)
			c.sets = sized(&d.sets[i], c.blocks*c.rows)
			clear(c.sets)
		} else {
			c.coefs = sized(&d.coefs[i], 64*c.blocks*c.v)
		}
	}
	return nil
}

// sized returns n elements of kept memory, grown if needed. The contents are unspecified.
func sized[T any](kept *[]T, n int) []T {
	if cap(*kept) < n {
		*kept = make([]T, n)
	}
	return (*kept)[:n]
}

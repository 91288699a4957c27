// Package jpeg decodes JPEG files to exactly the samples of libjpeg-turbo: its accurate integer inverse transform
// (jidctint), its triangle filter for chroma ("fancy upsampling"), its colour conversion, and its reduced transforms
// (jidctred) for images of a half, a quarter or an eighth of the size. It reads baseline, extended sequential and
// progressive files of 8 bits with Huffman coding, in grey, YCbCr, RGB, CMYK and YCCK.
//
// Rows of coefficients and of samples go through package kernels, which uses AVX2 where the processor has it.
//
// Damaged data is refused, where libjpeg guesses and warns: an image that is half grey is worse than an error.
//
// A JPEG codes each component (Y, Cb, Cr) as blocks of 8 x 8 samples. Blocks of all components
// that cover the same pixels are a unit (the MCU of the standard, ITU-T T.81). A scan codes
// some components, in a progressive file with some of the bits only.
package jpeg

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tutti-server/tutti/steps/image/raster"
)

// MaxScans is the most scans of a file. Encoders write about a dozen at most. A hostile file repeats
// nearly empty scans, each of which takes the time of the whole image.
const MaxScans = 100

// Decoder decodes one file at a time and keeps its memory for the next one. The zero value is ready
// for use. It is not safe for concurrent use.
//
//  1. Decode parses and decodes a file, at full size or reduced.
//  2. Size, Gray, Row and Component read the image, until the next Decode.
type Decoder struct {
	// MaxPixels is the most pixels of a file, checked before memory is allocated; 0 is no limit.
	MaxPixels int64

	frame
	data     []byte
	scale    int
	quant    [4]steps
	hasQuant [4]bool
	dc, ac   [4]table
	restart  int
	scans    int
	jfif     bool
	adobe    int // the transform of the Adobe marker, -1 without one

	bits   reader
	scan   scan
	planes [4][]byte
	coefs  [4][]int16
	sets   [4][]uint64
	rows   [4][]byte // upsampled rows, by component
}

var (
	errTruncated = errors.New("truncated")
	errSegment   = errors.New("damaged segment")
)

// Decode decodes a file at 1/scale of its size, where scale is 1, 2, 4 or 8 and sizes are rounded up. data is borrowed
// until Decode returns. Memory of up to 4 bytes per pixel is allocated, 12 for a progressive file.
func (d *Decoder) Decode(data []byte, scale int) error {
	if scale != 1 && scale != 2 && scale != 4 && scale != 8 {
		return fmt.Errorf("impossible scale 1/%d, expected 1/1, 1/2, 1/4 or 1/8", scale)
	}
	d.frame, d.data, d.scale = frame{}, data, scale
	d.hasQuant, d.restart, d.scans, d.jfif, d.adobe = [4]bool{}, 0, 0, false, -1
	for i := range 4 {
		d.dc[i].ok, d.ac[i].ok = false, false
	}
	defer func() { d.data, d.bits.data = nil, nil }() // they are the caller's
	if len(data) < 2 || data[0] != 0xff || data[1] != 0xd8 {
		return errors.New("no start marker")
	}
	for at := 2; ; {
		marker, next := NextMarker(data, at)
		if marker == 0xd9 {
			break
		}
		if next+2 > len(data) {
			return errTruncated
		}
		n := int(binary.BigEndian.Uint16(data[next:]))
		if n < 2 {
			return errSegment
		}
		if next+n > len(data) {
			return errTruncated
		}
		at = next + n
		if err := d.segment(marker, data[next+2:at], at); err != nil {
			return err
		}
		if marker == 0xda {
			at = d.bits.src
		}
	}
	return d.complete()
}

// NextMarker returns the next marker with a length, or that of the end, from i on, and the index after it. Bytes before
// the marker are skipped, as libjpeg does. The marker is 0 at the end of the data.
func NextMarker(data []byte, i int) (marker byte, next int) {
	for ; i+1 < len(data); i++ {
		skip := bytes.IndexByte(data[i:len(data)-1], 0xff)
		if skip < 0 {
			break
		}
		i += skip
		if m := data[i+1]; m > 1 && m != 0xff && (m < 0xd0 || m > 0xd7) { // not stuffing, fill bytes and restarts
			return m, i + 2
		}
	}
	return 0, len(data)
}

// segment processes one segment, which ends at index end.
func (d *Decoder) segment(marker byte, seg []byte, end int) error {
	switch {
	case marker == 0xc0 || marker == 0xc1 || marker == 0xc2:
		return d.readFrame(seg, marker == 0xc2)
	case marker == 0xc4:
		return d.readHuffman(seg)
	case marker > 0xc2 && marker <= 0xcf && marker != 0xc8:
		return fmt.Errorf("unsupported JPEG process SOF%d (lossless, hierarchical or arithmetic)", marker-0xc0)
	case marker == 0xdb:
		return d.readQuant(seg)
	case marker == 0xdd:
		if len(seg) != 2 {
			return errSegment
		}
		d.restart = int(binary.BigEndian.Uint16(seg))
	case marker == 0xe0:
		d.jfif = d.jfif || len(seg) >= 14 && string(seg[:5]) == "JFIF\x00"
	case marker == 0xee:
		if len(seg) >= 12 && string(seg[:5]) == "Adobe" {
			d.adobe = int(seg[11])
		}
	case marker == 0xda:
		return d.readScan(seg, end)
	}
	return nil
}

// readQuant reads quantisation tables (DQT).
func (d *Decoder) readQuant(seg []byte) error {
	for len(seg) > 0 {
		wide, id := int(seg[0]>>4), seg[0]&15
		if wide > 1 || id > 3 || len(seg) < 1+64*(1+wide) {
			return errSegment
		}
		seg = seg[1:]
		for i := range 64 {
			factor := uint32(seg[i])
			if wide == 1 {
				factor = uint32(binary.BigEndian.Uint16(seg[2*i:]))
			}
			d.quant[id][i] = factor<<8 | uint32(zigzag[i])
		}
		for i := 64; i < len(d.quant[id]); i++ {
			d.quant[id][i] = d.quant[id][63]
		}
		d.hasQuant[id] = true
		seg = seg[64*(1+wide):]
	}
	return nil
}

// readHuffman reads Huffman tables (DHT).
func (d *Decoder) readHuffman(seg []byte) error {
	for len(seg) > 0 {
		if len(seg) < 17 {
			return errSegment
		}
		class, id, n := seg[0]>>4, seg[0]&15, 0
		for _, c := range seg[1:17] {
			n += int(c)
		}
		if class > 1 || id > 3 || n > 256 || len(seg) < 17+n {
			return errSegment
		}
		t := &d.dc[id]
		if class == 1 {
			t = &d.ac[id]
		}
		if err := t.set(seg[1:17], seg[17:17+n]); err != nil {
			return err
		}
		if class == 0 {
			for _, s := range seg[17 : 17+n] {
				if s > 15 {
					return errTable
				}
			}
		}
		seg = seg[17+n:]
	}
	return nil
}

// complete checks that every component had a scan, and transforms progressive files.
func (d *Decoder) complete() error {
	if d.n == 0 {
		return errors.New("no frame header")
	}
	for i := range d.comps[:d.n] {
		c := &d.comps[i]
		if !c.seen {
			return errors.New("no image data of one of the components")
		}
		if d.progressive {
			if !d.hasQuant[c.quant] {
				return errQuant
			}
			d.reconstruct(c)
		}
	}
	return nil
}

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
		d.planes[i] = raster.Sized(d.planes[i], c.stride*c.rows*c.size)
		c.plane = d.planes[i]
		if f.progressive {
			d.coefs[i], d.sets[i] = raster.Sized(d.coefs[i], 64*c.blocks*c.rows), raster.Sized(d.sets[i], c.blocks*c.rows)
			clear(d.coefs[i])
			clear(d.sets[i])
		} else {
			d.coefs[i] = raster.Sized(d.coefs[i], 64*c.blocks*c.v)
		}
		c.coefs, c.sets = d.coefs[i], d.sets[i]
	}
	return nil
}

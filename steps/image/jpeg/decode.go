package jpeg

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// maxScans is the most scans of a file. Encoders write about a dozen at most. A hostile file repeats
// nearly empty scans, each of which takes the time of the whole image.
const maxScans = 100

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

// Decode decodes a file at 1/scale of its size, where scale is 1, 2, 4 or 8 and sizes are rounded
// up. data is borrowed until Decode returns. Memory of up to 4 bytes per pixel is allocated,
// 12 for a progressive file.
func (d *Decoder) Decode(data []byte, scale int) error {
	if scale != 1 && scale != 2 && scale != 4 && scale != 8 {
		return fmt.Errorf("impossible scale 1/%d, expected 1/1, 1/2, 1/4 or 1/8", scale)
	}
	d.start(data, scale)
	defer d.end()
	if len(data) < 2 || data[0] != 0xff || data[1] != 0xd8 {
		return errors.New("no start marker")
	}
	for at := 2; ; {
		marker, next := nextMarker(data, at)
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

// start resets the state of the last file.
func (d *Decoder) start(data []byte, scale int) {
	d.frame = frame{}
	d.data, d.scale = data, scale
	d.hasQuant = [4]bool{}
	for i := range 4 {
		d.dc[i].ok, d.ac[i].ok = false, false
	}
	d.restart, d.scans, d.jfif, d.adobe = 0, 0, false, -1
}

// end drops the reference to the caller's bytes.
func (d *Decoder) end() {
	d.data = nil
	d.bits.data = nil
}

// nextMarker returns the next marker from i on and the index after it. Bytes before the marker are
// skipped, as libjpeg does. The marker is 0 at the end of the data.
func nextMarker(data []byte, i int) (marker byte, next int) {
	for ; i+1 < len(data); i++ {
		if m := data[i+1]; data[i] == 0xff && m != 0 && m != 0xff && (m < 0xd0 || m > 0xd7) && m != 0x01 {
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

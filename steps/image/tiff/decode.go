// Package tiff decodes the first image of a TIFF file to samples of 8 bits: those of Pillow 13's convert("RGB").
//
// It reads gray (with or without alpha), palettes, RGB (likewise), CMYK and, inside JPEG, YCbCr; samples of 1, 2, 4, 8 and
// 16 bits and floating point of 32; strips and tiles, interleaved and in planes; without compression and with CCITT
// groups 3 and 4, LZW, Deflate, PackBits and JPEG. Other files are refused with an error that names the feature.
// golang.org/x/image/tiff refuses 56 of the 91 test files and decodes 10 to other samples; its LZW and CCITT decoders are used.
//
// Two differences from Pillow are deliberate: gray samples of 16 bits give their high byte, where Pillow makes all above
// 255 white, and damaged data is refused. Two more are errors of Pillow: it reads compressed big-endian floating point
// samples as little-endian, and ignores the alpha of compressed gray planes.
//
// Rows are decompressed one at a time. Beside the result, memory is allocated for a row of a strip or tile, and for a JPEG.
package tiff

import (
	"bytes"
	"fmt"

	"github.com/tutti-server/tutti/steps/image/jpeg"
	"github.com/tutti-server/tutti/steps/image/kernels"
	"github.com/tutti-server/tutti/steps/image/raster"
)

// Decoder decodes one file at a time and keeps its memory for the next one. The zero value is ready for use. It is not
// safe for concurrent use.
type Decoder struct {
	converter converter
	planes    []rows
	samples   []byte // a row of a segment, a byte per sample
	tmp       []byte // for predictors
	file      []byte // a JPEG strip with its tables
}

// Decode decodes the image of a header from ReadHeader. pix must have room for its pixels, 1 byte each if the header is
// Gray, else 3. alpha must have a byte per pixel if the header has Alpha. j decodes JPEG strips and tiles. On an error the
// contents are undefined.
func (d *Decoder) Decode(h *Header, pix, alpha []byte, j *jpeg.Decoder) error {
	defer d.forget()
	if err := h.checkPlaces(); err != nil {
		return err
	}
	if err := d.converter.set(h); err != nil {
		return err
	}
	n := 1
	if h.planar {
		n = h.samples
	}
	for len(d.planes) < n {
		d.planes = append(d.planes, rows{})
	}
	d.samples = raster.Sized(d.samples, h.segWidth*h.samples)
	if h.predictor != predictNone {
		d.tmp = raster.Sized(d.tmp, h.rowBytes())
	}
	dst := canvas{h: h, pix: pix, alpha: alpha, converter: &d.converter}
	for y := range h.down {
		for x := range h.across {
			if err := d.segment(h, &dst, x, y, n, j); err != nil {
				return err
			}
		}
	}
	return nil
}

// segment decodes the strip or tile of column x and row y.
func (d *Decoder) segment(h *Header, dst *canvas, x, y, planes int, j *jpeg.Decoder) error {
	i := y*h.across + x
	dst.x, dst.y = x*h.segWidth, y*h.segHeight
	dst.n, dst.rows = min(h.segWidth, h.Width-dst.x), min(h.segHeight, h.Height-dst.y)
	if h.compression == compressJPEG {
		return d.jpeg(h, dst, i, j)
	}
	for p := range planes {
		if err := d.planes[p].open(h, p*h.across*h.down+i, dst.rows); err != nil {
			return err
		}
	}
	for range dst.rows {
		row, err := d.row(h, planes)
		if err != nil {
			return err
		}
		dst.put(row)
	}
	return nil
}

// row returns the next row of a segment, a byte per sample.
func (d *Decoder) row(h *Header, planes int) ([]byte, error) {
	for p := range planes {
		row, err := d.planes[p].next()
		if err != nil {
			return nil, err
		}
		h.undo(row, d.tmp)
		if planes == 1 && h.bits == 8 {
			return row, nil
		}
		h.narrow(d.samples[p:], row, planes)
	}
	return d.samples, nil
}

// forget drops the references to the file.
func (d *Decoder) forget() {
	d.converter.h = nil
	for i := range d.planes {
		d.planes[i].forget()
	}
}

// canvas is the image that rows of segments are written to.
type canvas struct {
	h          *Header
	pix, alpha []byte
	converter  *converter
	x, y       int // the pixel where the next row goes
	n, rows    int // pixels of a row and rows of the segment inside of the image
}

// place returns the memory of the next row and of its alpha.
func (c *canvas) place() (pix, alpha []byte) {
	at, size := c.y*c.h.Width+c.x, 3
	if c.h.Gray {
		size = 1
	}
	if c.h.Alpha {
		alpha = c.alpha[at:][:c.n]
	}
	c.y++
	return c.pix[at*size:][:c.n*size], alpha
}

// put writes the next row, a byte per sample.
func (c *canvas) put(samples []byte) {
	pix, alpha := c.place()
	c.converter.row(pix, alpha, samples[:c.n*c.h.samples])
}

// jpeg decodes a segment that is a JPEG file. Its tables may be in the directory.
func (d *Decoder) jpeg(h *Header, dst *canvas, i int, j *jpeg.Decoder) error {
	file, err := d.jpegFile(h, i, dst.rows)
	if err != nil {
		return err
	}
	j.MaxPixels = int64(h.segWidth) * int64(h.segHeight)
	if err := j.Decode(file, 1); err != nil {
		return err
	}
	if w, t := j.Size(); w != h.segWidth || t < dst.rows || j.Components() != h.samples {
		return fmt.Errorf("expected a JPEG of %d x %d pixels of %d samples as a strip or tile, found %d x %d of %d",
			h.segWidth, dst.rows, h.samples, w, t, j.Components())
	}
	for y := range dst.rows {
		if h.colors == colorYCbCr && h.samples == 3 {
			pix, _ := dst.place()
			w := len(pix) / 3
			kernels.Color(pix, j.Component(0, y)[:w], j.Component(1, y)[:w], j.Component(2, y)[:w])
			continue
		}
		for c := range h.samples {
			for x, v := range j.Component(c, y) {
				d.samples[x*h.samples+c] = v
			}
		}
		dst.put(d.samples)
	}
	return nil
}

var (
	jpegStart = []byte{0xff, 0xd8}
	jpegEnd   = []byte{0xff, 0xd9}
)

// jpegFile returns a segment with the tables of the directory before it.
func (d *Decoder) jpegFile(h *Header, i, rows int) ([]byte, error) {
	raw, err := h.segment(i, rows)
	if err != nil {
		return nil, err
	}
	tables := h.order.values(tagJPEGTables).data
	if !bytes.HasPrefix(tables, jpegStart) || !bytes.HasPrefix(raw, jpegStart) {
		return raw, nil
	}
	d.file = append(d.file[:0], bytes.TrimSuffix(tables, jpegEnd)...)
	d.file = append(d.file, raw[len(jpegStart):]...)
	return d.file, nil
}

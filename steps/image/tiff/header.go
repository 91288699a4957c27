package tiff

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// The tags that describe an image.
const (
	tagWidth           = 256
	tagHeight          = 257
	tagBits            = 258
	tagCompression     = 259
	tagPhotometric     = 262
	tagFillOrder       = 266
	tagStripOffsets    = 273
	tagSamples         = 277
	tagRowsPerStrip    = 278
	tagStripByteCounts = 279
	tagPlanar          = 284
	tagFaxOptions      = 292
	tagPredictor       = 317
	tagColorMap        = 320
	tagTileWidth       = 322
	tagTileHeight      = 323
	tagTileOffsets     = 324
	tagTileByteCounts  = 325
	tagExtraSamples    = 338
	tagFormat          = 339
	tagJPEGTables      = 347
)

// The supported photometric interpretations.
const (
	whiteIsZero = 0
	blackIsZero = 1
	colorRGB    = 2
	palette     = 3
	colorCMYK   = 5
	colorYCbCr  = 6
)

// The kinds of alpha.
const (
	noAlpha       = 0
	premultiplied = 1
	straight      = 2
	corelAlpha    = 999 // written by Corel Draw 10 for straight
)

// Header is what a file claims about its first image.
type Header struct {
	Width, Height int
	// Gray is set if a pixel has one sample; otherwise it has three. Alpha is set if it has alpha, too.
	Gray, Alpha bool
	Area        int64 // Area is the number of pixels to decode: tiles may reach beyond the image
	Least       int64 // Least is the smallest number of bytes that can hold that many pixels

	order       Directory
	colors      uint32 // photometric interpretation
	bits        int    // of a sample
	float       bool
	samples     int // per pixel, with alpha and others
	alpha       uint32
	planar      bool
	compression uint32
	predictor   uint32
	reversed    bool // the first bit of a byte is the lowest
	segments
}

// segments describes the strips or tiles of one plane of an image.
type segments struct {
	segWidth, segHeight int
	across, down        int
	offsets             values
	counts              values
}

var errTruncated = errors.New("truncated before the image size")

// ReadHeader reads the description of the first image. It returns an error for features that Decode does not support.
func ReadHeader(data []byte) (Header, error) {
	d, ok := Open(data)
	if !ok {
		return Header{}, errTruncated
	}
	w, okW := d.Number(tagWidth)
	t, okH := d.Number(tagHeight)
	if !okW || !okH {
		return Header{}, errors.New("no image size")
	}
	if w == 0 || t == 0 || w > 1<<31-1 || t > 1<<31-1 {
		return Header{}, fmt.Errorf("impossible size %d x %d", w, t)
	}
	h := Header{Width: int(w), Height: int(t), Area: int64(w) * int64(t), order: d}
	for _, read := range []func() error{h.readSamples, h.readColors, h.readCompression, h.readSegments} {
		if err := read(); err != nil {
			return h, err
		}
	}
	h.Least = h.least()
	return h, nil
}

// checkPlaces returns an error unless every strip or tile has an offset.
func (h *Header) checkPlaces() error {
	n := int64(h.across) * int64(h.down)
	if h.planar {
		n *= int64(h.samples)
	}
	if found := h.offsets.len(); int64(found) < n {
		return fmt.Errorf("expected the places of %d TIFF strips or tiles, found %d", n, found)
	}
	return nil
}

// readSamples reads how samples are stored.
func (h *Header) readSamples() error {
	h.samples = int(min(h.order.number(tagSamples, 1), 1<<16))
	bits := h.order.values(tagBits)
	h.bits = 1
	for i := range bits.len() {
		if i == 0 {
			h.bits = int(min(bits.at(0), 1<<16))
		} else if int(bits.at(i)) != h.bits && i < h.samples {
			return fmt.Errorf("unsupported TIFF whose samples have %d and %d bits, expected all alike", h.bits, bits.at(i))
		}
	}
	formats := h.order.values(tagFormat)
	for i := range min(formats.len(), h.samples) {
		if f := formats.at(i); f != formats.at(0) || f != 1 && f != 3 {
			return fmt.Errorf("unsupported TIFF of sample format %d, expected unsigned integers or floating point", f)
		}
	}
	h.float = formats.len() > 0 && formats.at(0) == 3
	switch {
	case h.float && h.bits != 32:
		return fmt.Errorf("unsupported TIFF of floating point samples of %d bits, expected 32", h.bits)
	case !h.float && h.bits != 1 && h.bits != 2 && h.bits != 4 && h.bits != 8 && h.bits != 16:
		return fmt.Errorf("unsupported TIFF of %d bits per sample, expected 1, 2, 4, 8 or 16", h.bits)
	}
	switch p := h.order.number(tagPlanar, 1); p {
	case 1, 2:
		h.planar = p == 2 && h.samples > 1
	default:
		return fmt.Errorf("unknown TIFF planar configuration %d", p)
	}
	return nil
}

// mostExtra is the most samples per pixel beside the colours.
const mostExtra = 3

// readColors reads the meaning of the samples.
func (h *Header) readColors() error {
	h.colors = h.order.number(tagPhotometric, whiteIsZero)
	var colors int
	switch h.colors {
	case whiteIsZero, blackIsZero, palette:
		colors = 1
	case colorRGB, colorYCbCr:
		colors = 3
	case colorCMYK:
		colors = 4
	default:
		return fmt.Errorf("unsupported TIFF colours (photometric interpretation %d), expected gray, RGB, CMYK or a palette", h.colors)
	}
	if h.colors == colorYCbCr && h.samples != colors {
		return fmt.Errorf("unsupported TIFF of %d samples per pixel, expected 3 of YCbCr", h.samples)
	}
	extra := h.samples - colors
	kinds := h.order.values(tagExtraSamples)
	switch {
	case extra < 0 || extra > mostExtra:
		return fmt.Errorf("unsupported TIFF of %d samples per pixel, expected %d and at most %d more", h.samples, colors, mostExtra)
	case h.bits < 8 && (colors > 1 || extra > 0):
		return fmt.Errorf("unsupported TIFF of %d samples of %d bits, expected 8 or 16", h.samples, h.bits)
	case h.float && h.samples > 1:
		return fmt.Errorf("unsupported TIFF of %d floating point samples, expected 1", h.samples)
	case h.colors == palette && h.bits > 8:
		return fmt.Errorf("unsupported TIFF of %d bits per index of a palette, expected at most 8", h.bits)
	case extra == 0:
	case kinds.len() > 0:
		h.alpha = kinds.at(0)
	case h.colors == colorRGB: // some writers omit the tag
		h.alpha = straight
	}
	if h.alpha == corelAlpha {
		h.alpha = straight
	}
	if h.alpha > straight || h.alpha != noAlpha && h.colors == colorCMYK {
		return fmt.Errorf("unsupported TIFF of extra samples of kind %d", h.alpha)
	}
	h.Alpha = h.alpha != noAlpha
	h.Gray = !h.Alpha && h.colors <= blackIsZero
	return nil
}

// readSegments reads the layout of the strips or tiles.
func (h *Header) readSegments() error {
	s := &h.segments
	if w, tiled := h.order.Number(tagTileWidth); tiled {
		t := h.order.number(tagTileHeight, 0)
		if w == 0 || t == 0 || w > 1<<16 || t > 1<<16 {
			return fmt.Errorf("impossible TIFF tiles of %d x %d pixels", w, t)
		}
		s.segWidth, s.segHeight = int(w), int(t)
		s.offsets, s.counts = h.order.values(tagTileOffsets), h.order.values(tagTileByteCounts)
	} else {
		rows := h.order.number(tagRowsPerStrip, 1<<32-1)
		if rows == 0 {
			return errors.New("impossible TIFF strips of 0 rows")
		}
		s.segWidth, s.segHeight = h.Width, int(min(int64(rows), int64(h.Height)))
		s.offsets, s.counts = h.order.values(tagStripOffsets), h.order.values(tagStripByteCounts)
	}
	s.across, s.down = (h.Width-1)/s.segWidth+1, (h.Height-1)/s.segHeight+1
	if s.segWidth != h.Width {
		h.Area = int64(s.across) * int64(s.segWidth) * int64(s.down) * int64(s.segHeight)
	}
	return nil
}

// Directory is the first image file directory of a TIFF file. EXIF data has the same format. It borrows the file.
type Directory struct {
	file    []byte
	order   binary.ByteOrder
	entries []byte
}

// Open returns the first directory. ok is false if there is none or it is truncated.
func Open(data []byte) (d Directory, ok bool) {
	d.file = data
	switch {
	case bytes.HasPrefix(data, []byte("II*\x00")):
		d.order = binary.LittleEndian
	case bytes.HasPrefix(data, []byte("MM\x00*")):
		d.order = binary.BigEndian
	default:
		return d, false
	}
	if len(data) < 8 {
		return d, false
	}
	at := int64(d.order.Uint32(data[4:]))
	if at+2 > int64(len(data)) {
		return d, false
	}
	n := int64(d.order.Uint16(data[at:]))
	if at+2+12*n > int64(len(data)) {
		return d, false
	}
	d.entries = data[at+2 : at+2+12*n]
	return d, true
}

// The supported types of values, and their sizes.
const (
	typeByte      = 1
	typeShort     = 3
	typeLong      = 4
	typeUndefined = 7
)

// values holds the values of a tag. The zero value has none.
type values struct {
	order binary.ByteOrder
	size  int // of a value in bytes: 1, 2 or 4
	data  []byte
}

// values returns the values of a tag, which must lie within the file.
func (d Directory) values(tag uint16) values {
	for e := d.entries; len(e) >= 12; e = e[12:] {
		if d.order.Uint16(e) != tag {
			continue
		}
		v := values{order: d.order}
		switch d.order.Uint16(e[2:]) {
		case typeByte, typeUndefined:
			v.size = 1
		case typeShort:
			v.size = 2
		case typeLong:
			v.size = 4
		default:
			return values{}
		}
		n := int64(v.size) * int64(d.order.Uint32(e[4:]))
		if n <= 4 {
			v.data = e[8 : 8+n]
		} else if at := int64(d.order.Uint32(e[8:])); at+n <= int64(len(d.file)) {
			v.data = d.file[at : at+n]
		}
		return v
	}
	return values{}
}

// len returns the number of values.
func (v values) len() int {
	if v.size == 0 {
		return 0
	}
	return len(v.data) / v.size
}

// at returns value i, which must be below len.
func (v values) at(i int) uint32 {
	switch p := v.data[i*v.size:]; v.size {
	case 1:
		return uint32(p[0])
	case 2:
		return uint32(v.order.Uint16(p))
	default:
		return v.order.Uint32(p)
	}
}

// Number returns the first value of a tag of integers.
func (d Directory) Number(tag uint16) (uint32, bool) {
	v := d.values(tag)
	if v.len() == 0 {
		return 0, false
	}
	return v.at(0), true
}

// number is Number with a default.
func (d Directory) number(tag uint16, absent uint32) uint32 {
	if v, ok := d.Number(tag); ok {
		return v
	}
	return absent
}

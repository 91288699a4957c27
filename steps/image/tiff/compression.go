package tiff

import (
	"bytes"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"math/bits"

	"golang.org/x/image/ccitt"
	"golang.org/x/image/tiff/lzw"

	"github.com/tutti-server/tutti/steps/image/raster"
)

// The compressions that are supported.
const (
	compressNone     = 1
	compressHuffman  = 2
	compressGroup3   = 3
	compressGroup4   = 4
	compressLZW      = 5
	compressOldJPEG  = 6
	compressJPEG     = 7
	compressDeflate  = 8
	compressPackBits = 32773
	compressOldZip   = 32946
)

// compressionNames are unsupported compressions that errors name.
var compressionNames = map[uint32]string{
	compressHuffman: "CCITT modified Huffman", compressOldJPEG: "JPEG of the old kind", 32809: "ThunderScan", 34676: "SGI LogLuv",
	34712: "JPEG 2000", 34887: "LERC", 34925: "LZMA", 50000: "Zstandard", 50001: "WebP", 50002: "JPEG XL",
}

// readCompression returns an error for unsupported compressions.
func (h *Header) readCompression() error {
	h.compression = h.order.number(tagCompression, compressNone)
	if h.compression == compressOldZip {
		h.compression = compressDeflate
	}
	h.reversed = h.order.number(tagFillOrder, 1) == 2
	switch h.compression {
	case compressNone, compressPackBits:
	case compressGroup3, compressGroup4:
		if h.bits != 1 || h.samples != 1 {
			return fmt.Errorf("unsupported TIFF with fax compression of %d samples of %d bits, expected 1 of 1", h.samples, h.bits)
		}
		if o := h.order.number(tagFaxOptions, 0); h.compression == compressGroup3 && o&3 != 0 {
			return errors.New("unsupported TIFF with two-dimensional fax compression of group 3")
		}
	case compressLZW, compressDeflate:
		if h.reversed {
			return errors.New("unsupported TIFF of reversed bits with LZW or Deflate")
		}
	case compressJPEG:
		if h.planar || h.bits != 8 {
			return errors.New("unsupported TIFF with JPEG of separate planes or of samples that have not 8 bits")
		}
	default:
		name := compressionNames[h.compression]
		if name == "" {
			name = fmt.Sprintf("kind %d", h.compression)
		}
		return fmt.Errorf("unsupported TIFF compression: %s", name)
	}
	if h.colors == colorYCbCr && h.compression != compressJPEG {
		return errors.New("unsupported TIFF of YCbCr without JPEG")
	}
	return h.readPredictor()
}

// rowBytes returns the length of an uncompressed row of a segment of one plane.
func (h *Header) rowBytes() int {
	return (h.segWidth*h.planeSamples()*h.bits + 7) / 8
}

// planeSamples returns the samples per pixel in a plane.
func (h *Header) planeSamples() int {
	if h.planar {
		return 1
	}
	return h.samples
}

// least returns the smallest number of bytes that can hold the pixels of a compression.
func (h *Header) least() int64 {
	raw := int64(h.Height) * ((int64(h.Width)*int64(h.samples)*int64(h.bits) + 7) / 8)
	switch h.compression {
	case compressNone:
		return raw
	case compressPackBits:
		return raw / 64
	case compressLZW:
		return raw / 4096
	case compressDeflate:
		return raw / 1032
	}
	return 0
}

// rows reads the rows of one plane of a segment.
type rows struct {
	raw      []byte // the rest of uncompressed data
	plain    bool
	reversed bool
	reader   io.Reader
	packed   packBits
	data     bytes.Reader
	zip      io.ReadCloser
	line     []byte
}

// open starts reading segment i, of which height rows are needed.
func (r *rows) open(h *Header, i, height int) error {
	raw, err := h.segment(i, height)
	if err != nil {
		return err
	}
	r.raw, r.plain, r.reversed = raw, h.compression == compressNone, h.reversed
	r.line = raster.Sized(r.line, h.rowBytes())
	r.data.Reset(raw)
	switch h.compression {
	case compressGroup3, compressGroup4:
		order, format := ccitt.MSB, ccitt.Group3
		if h.reversed {
			order = ccitt.LSB
		}
		if h.compression == compressGroup4 {
			format = ccitt.Group4
		}
		invert := &ccitt.Options{Invert: true} // white is 0, as in libtiff
		r.reader = ccitt.NewReader(&r.data, order, format, h.segWidth, height, invert)
	case compressLZW:
		r.reader = lzw.NewReader(&r.data, lzw.MSB, 8)
	case compressDeflate:
		return r.openZip()
	case compressPackBits:
		r.packed.data, r.packed.run, r.packed.reversed = raw, nil, h.reversed
		r.reader = &r.packed
	}
	return nil
}

func (r *rows) openZip() (err error) {
	if z, ok := r.zip.(zlib.Resetter); ok {
		err = z.Reset(&r.data, nil)
	} else {
		r.zip, err = zlib.NewReader(&r.data)
	}
	r.reader = r.zip
	return short(err)
}

// next returns the next row, borrowed. The caller may modify it only where it is compressed.
func (r *rows) next() ([]byte, error) {
	n := len(r.line)
	if !r.plain {
		_, err := io.ReadFull(r.reader, r.line)
		return r.line, short(err)
	}
	if len(r.raw) < n {
		return nil, errShort
	}
	row := r.raw[:n]
	r.raw = r.raw[n:]
	if !r.reversed {
		return row, nil
	}
	copy(r.line, row)
	reverse(r.line)
	return r.line, nil
}

// forget drops the references to the file.
func (r *rows) forget() {
	r.raw, r.packed.data, r.packed.run, r.reader = nil, nil, nil, nil
	r.data.Reset(nil)
}

var errShort = errors.New("truncated: a strip or tile ends early")

// short returns the error of truncated data.
func short(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errShort
	}
	return err
}

// segment returns the bytes of segment i, counted over all planes.
func (h *Header) segment(i, height int) ([]byte, error) {
	file := h.order.file
	at := int64(h.offsets.at(i))
	if at >= int64(len(file)) {
		return nil, errors.New("truncated: a strip or tile lies behind the end of the file")
	}
	end := int64(len(file))
	if i < h.counts.len() && h.counts.at(i) > 0 {
		end = min(end, at+int64(h.counts.at(i)))
	} else if h.compression == compressNone {
		end = min(end, at+int64(height)*int64(h.rowBytes()))
	}
	return file[at:end], nil
}

// packBits reads PackBits data: a count n from 0 to 127 is followed by n+1 bytes, a count from -127 to -1 by a byte that
// is repeated 1-n times.
type packBits struct {
	data, run []byte // the rest of the data, and of the run that was read last
	repeated  [128]byte
	reversed  bool // the bits of every byte are reversed, counts too
}

var _ io.Reader = (*packBits)(nil)

// Read implements io.Reader.
func (p *packBits) Read(dst []byte) (n int, err error) {
	for n < len(dst) {
		if len(p.run) == 0 && !p.next() {
			return n, io.ErrUnexpectedEOF
		}
		k := copy(dst[n:], p.run)
		if p.reversed {
			reverse(dst[n : n+k])
		}
		p.run, n = p.run[k:], n+k
	}
	return n, nil
}

// next reads the next run. It reports false at the end.
func (p *packBits) next() bool {
	if len(p.data) < 2 { // a count alone is the end
		return false
	}
	count := p.data[0]
	if p.reversed {
		count = bits.Reverse8(count)
	}
	p.data = p.data[1:]
	switch n := int(int8(count)); {
	case n >= 0:
		n = min(n+1, len(p.data))
		p.run, p.data = p.data[:n], p.data[n:]
	case n > -128: // which is no operation
		p.run = p.repeated[:1-n]
		for i := range p.run {
			p.run[i] = p.data[0]
		}
		p.data = p.data[1:]
	}
	return true
}

func reverse(p []byte) {
	for i, v := range p {
		p[i] = bits.Reverse8(v)
	}
}

// The supported predictors.
const (
	predictNone  = 1
	predictLeft  = 2 // a sample is stored as the difference from the one to its left
	predictFloat = 3 // likewise for the bytes of floating point samples, the highest bytes of a row first
)

// readPredictor returns an error for unsupported predictors. They apply to LZW and Deflate only.
func (h *Header) readPredictor() error {
	h.predictor = predictNone
	if h.compression != compressLZW && h.compression != compressDeflate {
		return nil
	}
	h.predictor = h.order.number(tagPredictor, predictNone)
	switch {
	case h.predictor == predictNone:
	case h.predictor == predictLeft && h.bits >= 8:
	case h.predictor == predictFloat && h.float:
	default:
		return fmt.Errorf("unsupported TIFF predictor %d of samples of %d bits", h.predictor, h.bits)
	}
	return nil
}

// undo converts differences of a row of one plane to samples. tmp is as long as the row.
func (h *Header) undo(row, tmp []byte) {
	n := h.planeSamples()
	switch {
	case h.predictor == predictFloat:
		h.undoFloat(row, tmp, n)
	case h.predictor == predictNone:
	case h.bits == 8:
		for i := n; i < len(row); i++ {
			row[i] += row[i-n]
		}
	case h.bits == 16:
		order := h.order.order
		for i := 2 * n; i+2 <= len(row); i += 2 {
			order.PutUint16(row[i:], order.Uint16(row[i:])+order.Uint16(row[i-2*n:]))
		}
	default:
		order := h.order.order
		for i := 4 * n; i+4 <= len(row); i += 4 {
			order.PutUint32(row[i:], order.Uint32(row[i:])+order.Uint32(row[i-4*n:]))
		}
	}
}

// undoFloat is undo for floating point. The samples keep the byte order of the file.
func (h *Header) undoFloat(row, tmp []byte, n int) {
	copy(tmp, row)
	for i := n; i < len(tmp); i++ {
		tmp[i] += tmp[i-n]
	}
	count := len(row) / 4
	for i := range count {
		v := uint32(tmp[i])<<24 | uint32(tmp[count+i])<<16 | uint32(tmp[2*count+i])<<8 | uint32(tmp[3*count+i])
		h.order.order.PutUint32(row[4*i:], v)
	}
}

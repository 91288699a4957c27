package decode

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tutti-server/tutti/steps/image/jpeg"
	"github.com/tutti-server/tutti/steps/image/tiff"
)

// format is a file format.
type format uint8

const (
	formatUnknown format = iota
	formatJPEG
	formatPNG
	formatGIF
	formatWebP
	formatBMP
	formatTIFF
)

// formats is indexed by format. A file has the format of which one of the prefixes matches; "?" matches any byte.
var formats = [...]struct {
	name     string
	prefixes []string
	header   func(data []byte) (Header, error)
}{
	formatUnknown: {name: "file of unknown format"},
	formatJPEG:    {"JPEG", []string{"\xff\xd8"}, jpegHeader},
	formatPNG:     {"PNG", []string{"\x89PNG\r\n\x1a\n"}, pngHeader},
	formatGIF:     {"GIF", []string{"GIF87a", "GIF89a"}, gifHeader},
	formatWebP:    {"WebP", []string{"RIFF????WEBP"}, webpHeader},
	formatBMP:     {"BMP", []string{"BM"}, bmpHeader},
	formatTIFF:    {"TIFF", []string{"II*\x00", "MM\x00*"}, tiffHeader},
}

// String returns the name that errors use.
func (f format) String() string { return formats[f].name }

// refuse returns the error of a file of a known format.
func (f format) refuse(err error) error {
	return fmt.Errorf("%s, found a %s that cannot be decoded: %w", expectedFormats, f, err)
}

// Header is what the first bytes of a file claim about its image.
type Header struct {
	format        format
	width, height int   // as stored, before turning
	orientation   uint8 // of EXIF: 2 to 8 where the image is to be turned
	animated      bool  // WebP
	area          int64 // pixels to decode, where not width times height: of the tiles of a TIFF
	// least is the smallest number of bytes that can hold that many pixels. A shorter file
	// is truncated or a decompression bomb, and is refused before it is decoded.
	least int64
}

// Pixels returns the number of pixels to decode.
func (h Header) Pixels() int64 { return max(h.area, int64(h.width)*int64(h.height)) }

// Size returns width and height of the image as it is shown, after turning.
func (h Header) Size() (width, height int) {
	if h.orientation >= 5 {
		return h.height, h.width
	}
	return h.width, h.height
}

const expectedFormats = "expected JPEG, PNG, GIF, WebP, BMP or TIFF"

var errTruncated = errors.New("truncated before the image size")

// sniff returns the format by the first bytes.
func sniff(data []byte) format {
	for f, known := range formats {
		for _, prefix := range known.prefixes {
			if matches(data, prefix) {
				return format(f)
			}
		}
	}
	return formatUnknown
}

func matches(data []byte, prefix string) bool {
	if len(data) < len(prefix) {
		return false
	}
	for i, c := range []byte(prefix) {
		if c != '?' && c != data[i] {
			return false
		}
	}
	return true
}

// readHeader reads the size of the image without decoding it.
func readHeader(data []byte) (Header, error) {
	if f := sniff(data); f != formatUnknown {
		return formats[f].header(data)
	}
	return Header{}, errors.New(expectedFormats + ", found " + describe(data))
}

// foreign lists formats that clients send by mistake, so that the error can name them.
var foreign = []struct {
	at          int
	magic, name string
}{
	{4, "ftypavif", "AVIF"},
	{4, "ftyphei", "HEIF"},
	{0, "\x00\x00\x00\x0cjP  ", "JPEG 2000"},
	{0, "%PDF", "PDF"},
	{0, "II+\x00", "BigTIFF"},
	{0, "MM\x00+", "BigTIFF"},
	{0, "<svg", "SVG"},
	{0, "/9j/", "base64 text of a JPEG"},
	{0, "iVBORw0KGgo", "base64 text of a PNG"},
}

func describe(data []byte) string {
	if len(data) == 0 {
		return "no bytes"
	}
	for _, f := range foreign {
		if len(data) >= f.at && bytes.HasPrefix(data[f.at:], []byte(f.magic)) {
			return f.name
		}
	}
	return fmt.Sprintf("%d bytes starting with % x", len(data), data[:min(len(data), 8)])
}

// pngHeader reads the IHDR chunk, which must be the first.
func pngHeader(data []byte) (Header, error) {
	const end = 8 + 8 + 13
	if len(data) < end {
		return Header{}, errTruncated
	}
	if string(data[12:16]) != "IHDR" {
		return Header{}, errors.New("no IHDR chunk at the start")
	}
	w, h := binary.BigEndian.Uint32(data[16:]), binary.BigEndian.Uint32(data[20:])
	if w == 0 || h == 0 || w > 1<<31-1 || h > 1<<31-1 {
		return Header{}, fmt.Errorf("impossible size %d x %d", w, h)
	}
	out := Header{format: formatPNG, width: int(w), height: int(h), least: end, orientation: pngOrientation(data)}
	if w <= MaxSide && h <= MaxSide { // deflate packs at most 1032 bytes into one
		bits := int64(data[24]) * max(pngChannels[data[25]], 1)
		out.least += int64(h) * ((int64(w)*bits + 7) / 8) / 1032
	}
	return out, nil
}

// pngChannels has the samples per pixel of the PNG colour types that have more than one.
var pngChannels = map[byte]int64{2: 3, 4: 2, 6: 4}

// pngOrientation reads the orientation from the eXIf chunk, 0 if there is none.
func pngOrientation(data []byte) uint8 {
	for at := 8; at+12 <= len(data); {
		n := int64(binary.BigEndian.Uint32(data[at:]))
		if n > int64(len(data)-at-12) {
			break
		}
		if string(data[at+4:at+8]) == "eXIf" {
			return exifOrientation(bytes.TrimPrefix(data[at+8:at+8+int(n)], exifMark))
		}
		at += 12 + int(n)
	}
	return 0
}

// exifMark starts EXIF data in JPEG, and by mistake of writers in PNG and WebP.
var exifMark = []byte("Exif\x00\x00")

const tagOrientation = 0x112

// exifOrientation reads the orientation, 1 to 8, from a block of EXIF data. It returns 0 if
// there is none or it is out of range.
func exifOrientation(data []byte) uint8 {
	d, ok := tiff.Open(data)
	if !ok {
		return 0
	}
	if v, ok := d.Number(tagOrientation); ok && v >= 1 && v <= 8 {
		return uint8(v)
	}
	return 0
}

// tiffHeader reads the size of the first image of a file.
func tiffHeader(data []byte) (Header, error) {
	t, err := tiff.ReadHeader(data)
	h := Header{format: formatTIFF, width: t.Width, height: t.Height, area: t.Area, least: t.Least}
	if err == nil {
		h.orientation = exifOrientation(data)
	}
	return h, err
}

// decodeTIFF decodes the first image of a file into d.whole.
func (d *Decoder) decodeTIFF(data []byte) error {
	h, err := tiff.ReadHeader(data)
	if err != nil {
		return err
	}
	d.whole.Reset(h.Width, h.Height, h.Gray)
	if h.Alpha {
		d.whole.AddAlpha()
	}
	return d.tiff.Decode(&h, d.whole.Pix, d.whole.Alpha, &d.jpeg)
}

// jpegHeader reads the segments up to the frame header. Like the decoder it skips bytes between segments.
func jpegHeader(data []byte) (Header, error) {
	orientation := uint8(0)
	for i := 2; ; {
		marker, next := jpeg.NextMarker(data, i)
		if next > len(data)-2 {
			return Header{}, errTruncated
		}
		n := int(binary.BigEndian.Uint16(data[next:]))
		switch {
		case n < 2:
			return Header{}, errors.New("short segment length")
		case marker == 0xda || marker == 0xd9:
			return Header{}, errors.New("no frame header before the image data")
		case marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc:
			h, err := jpegFrame(data, next+2, n-2, marker)
			h.orientation = orientation
			return h, err
		case marker == 0xe1 && orientation == 0 && next+n <= len(data):
			if exif, ok := bytes.CutPrefix(data[next+2:next+n], exifMark); ok {
				orientation = exifOrientation(exif)
			}
		}
		i = next + n
	}
}

// countScans counts the scans from i to the end of the image, up to one too many. Bytes
// after the end of the image do not count: phones append videos there.
func countScans(data []byte, i int) int {
	scans := 0
	for scans <= jpeg.MaxScans {
		marker, next := jpeg.NextMarker(data, i)
		if marker == 0xd9 || next > len(data)-2 {
			break
		}
		if marker == 0xda {
			scans++
		}
		i = next + int(binary.BigEndian.Uint16(data[next:]))
	}
	return scans
}

// jpegFrame reads the frame header whose n bytes start at i.
func jpegFrame(data []byte, i, n int, marker byte) (Header, error) {
	if marker > 0xc2 {
		return Header{}, fmt.Errorf("unsupported JPEG process SOF%d (lossless, hierarchical or arithmetic)", marker-0xc0)
	}
	if n < 6 || i+n > len(data) {
		return Header{}, errTruncated
	}
	h, w := int(binary.BigEndian.Uint16(data[i+1:])), int(binary.BigEndian.Uint16(data[i+3:]))
	if w == 0 || h == 0 {
		return Header{}, fmt.Errorf("impossible size %d x %d", w, h)
	}
	if countScans(data, i+n) > jpeg.MaxScans {
		return Header{}, fmt.Errorf("expected at most %d scans, found more", jpeg.MaxScans)
	}
	// A block of 8 x 8 samples takes at least two bits (one for its DC coefficient, one for
	// its end), in a progressive scan one. Chroma can take nearly nothing.
	blocks := int64((w+7)/8) * int64((h+7)/8)
	bits := int64(2)
	if marker == 0xc2 {
		bits = 1
	}
	return Header{format: formatJPEG, width: w, height: h, least: blocks * bits / 8}, nil
}

package decode

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
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

// formats is indexed by format. A file has the format of which one of the prefixes matches; "?"
// matches any byte.
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
		bits := int64(data[24]) * int64(pngChannels(data[25]))
		out.least += int64(h) * ((int64(w)*bits + 7) / 8) / 1032
	}
	return out, nil
}

// pngChannels returns the samples per pixel of a PNG colour type.
func pngChannels(colorType byte) int {
	switch colorType {
	case 2:
		return 3
	case 4:
		return 2
	case 6:
		return 4
	}
	return 1
}

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

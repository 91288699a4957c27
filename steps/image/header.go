package image

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// format says which decoder reads the bytes.
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

// maxSide is JPEG's own limit on a side. PNG allows more, but a strip of that
// length is no picture and would make the weight tables as long as itself.
const maxSide = 65535

// header is what the bytes claim about the image they hold.
type header struct {
	format        format
	width, height int   // As stored.
	orientation   uint8 // Of EXIF: 2 to 8 where the picture is to be turned.
	animated      bool  // WebP.
	area          int64 // Pixels that are decoded, where not width times height: of the tiles of a TIFF.
	// least is the smallest number of bytes that can hold that many pixels:
	// fewer mean a truncated file or a bomb, and either is refused unread.
	least int64
}

// pixels is how many are decoded.
func (h header) pixels() int64 { return max(h.area, int64(h.width)*int64(h.height)) }

// size is that of the picture as it is shown.
func (h header) size() (width, height int) {
	if h.orientation >= 5 {
		return h.height, h.width
	}
	return h.width, h.height
}

var (
	pngMagic  = []byte("\x89PNG\r\n\x1a\n")
	jpegMagic = []byte{0xff, 0xd8}
)

const expectedFormats = "expected JPEG, PNG, GIF, WebP, BMP or TIFF"

var errTruncated = errors.New("truncated before the image size")

// sniff tells the format by its first bytes.
func sniff(data []byte) format {
	switch {
	case bytes.HasPrefix(data, jpegMagic):
		return formatJPEG
	case bytes.HasPrefix(data, pngMagic):
		return formatPNG
	case isGIF(data):
		return formatGIF
	case len(data) >= 12 && string(data[:4]) == "RIFF" && string(data[8:12]) == "WEBP":
		return formatWebP
	case len(data) >= 2 && string(data[:2]) == "BM":
		return formatBMP
	case bytes.HasPrefix(data, []byte("II*\x00")), bytes.HasPrefix(data, []byte("MM\x00*")):
		return formatTIFF
	}
	return formatUnknown
}

// readHeader finds the image size without decoding.
func readHeader(data []byte) (header, error) {
	switch sniff(data) {
	case formatJPEG:
		return jpegHeader(data)
	case formatPNG:
		return pngHeader(data)
	case formatGIF:
		return gifHeader(data)
	case formatWebP:
		return webpHeader(data)
	case formatBMP:
		return bmpHeader(data)
	case formatTIFF:
		return tiffHeader(data)
	case formatUnknown:
	}
	return header{}, errors.New(expectedFormats + ", found " + describe(data))
}

// foreign lists formats that people send by mistake, so that the error can name
// what was found instead of its first bytes.
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

// pngHeader reads IHDR, which must be the first chunk.
func pngHeader(data []byte) (header, error) {
	const end = 8 + 8 + 13
	if len(data) < end {
		return header{}, errTruncated
	}
	if string(data[12:16]) != "IHDR" {
		return header{}, errors.New("no IHDR chunk at the start")
	}
	w, h := binary.BigEndian.Uint32(data[16:]), binary.BigEndian.Uint32(data[20:])
	if w == 0 || h == 0 || w > 1<<31-1 || h > 1<<31-1 {
		return header{}, fmt.Errorf("impossible size %d x %d", w, h)
	}
	bits := int64(data[24]) * int64(pngChannels(data[25]))
	if w <= maxSide && h <= maxSide {
		// Deflate packs at most 1032 to 1.
		raw := int64(h) * ((int64(w)*bits + 7) / 8)
		return header{format: formatPNG, width: int(w), height: int(h), least: end + raw/1032, orientation: pngOrientation(data)}, nil
	}
	return header{format: formatPNG, width: int(w), height: int(h), least: end, orientation: pngOrientation(data)}, nil
}

// pngChannels gives the samples per pixel of a PNG colour type.
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

// pngOrientation looks for EXIF data among the chunks.
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

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
)

// maxSide is JPEG's own limit on a side. PNG allows more, but a strip of that
// length is no picture and would make the weight tables as long as itself.
const maxSide = 65535

// maxScans bounds the passes of a JPEG. Encoders write at most about a dozen;
// a hostile file repeats nearly empty ones, each of which walks the whole image.
const maxScans = 100

// header is what the bytes claim about the image they hold.
type header struct {
	format        format
	width, height int
	// least is the smallest number of bytes that can hold that many pixels:
	// fewer mean a truncated file or a bomb, and either is refused unread.
	least int64
}

var (
	pngMagic  = []byte("\x89PNG\r\n\x1a\n")
	jpegMagic = []byte{0xff, 0xd8}
)

var errTruncated = errors.New("truncated before the image size")

// sniff tells the format by its first bytes.
func sniff(data []byte) format {
	switch {
	case bytes.HasPrefix(data, jpegMagic):
		return formatJPEG
	case bytes.HasPrefix(data, pngMagic):
		return formatPNG
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
	case formatUnknown:
	}
	return header{}, errors.New("expected JPEG or PNG, found " + describe(data))
}

// foreign lists formats that people send by mistake, so that the error can name
// what was found instead of its first bytes.
var foreign = []struct {
	at          int
	magic, name string
}{
	{0, "GIF8", "GIF"},
	{8, "WEBP", "WebP"},
	{0, "BM", "BMP"},
	{0, "II*\x00", "TIFF"},
	{0, "MM\x00*", "TIFF"},
	{4, "ftypavif", "AVIF"},
	{4, "ftyphei", "HEIF"},
	{0, "\x00\x00\x00\x0cjP  ", "JPEG 2000"},
	{0, "%PDF", "PDF"},
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
		return header{formatPNG, int(w), int(h), end + raw/1032}, nil
	}
	return header{formatPNG, int(w), int(h), end}, nil
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

// jpegHeader walks the segments to the frame header, as lenient about bytes
// between segments as the decoder is.
func jpegHeader(data []byte) (header, error) {
	for i := 2; ; {
		marker, next := jpegMarker(data, i)
		if next > len(data)-2 {
			return header{}, errTruncated
		}
		n := int(binary.BigEndian.Uint16(data[next:]))
		switch {
		case n < 2:
			return header{}, errors.New("short segment length")
		case marker == 0xda || marker == 0xd9:
			return header{}, errors.New("no frame header before the image data")
		case marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc:
			return jpegFrame(data, next+2, n-2, marker)
		}
		i = next + n
	}
}

// jpegMarker finds the next marker that has a length, from i on. The second
// result is where its length stands.
func jpegMarker(data []byte, i int) (marker byte, next int) {
	for i < len(data) {
		skip := bytes.IndexByte(data[i:], 0xff)
		if skip < 0 {
			break
		}
		for i += skip; i < len(data) && data[i] == 0xff; i++ { // Fill bytes may precede a marker.
		}
		if i == len(data) {
			break
		}
		m := data[i]
		i++
		if m == 0 || m >= 0xd0 && m <= 0xd7 { // Stuffing and restarts carry no length.
			continue
		}
		return m, i
	}
	return 0, len(data)
}

// countScans counts the scans from i to the end of the image, up to one too many.
// What follows the end does not count: phones append whole films there.
func countScans(data []byte, i int) int {
	scans := 0
	for scans <= maxScans {
		marker, next := jpegMarker(data, i)
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
func jpegFrame(data []byte, i, n int, marker byte) (header, error) {
	if marker > 0xc2 {
		return header{}, fmt.Errorf("unsupported JPEG process SOF%d (lossless, hierarchical or arithmetic)", marker-0xc0)
	}
	if n < 6 || i+n > len(data) {
		return header{}, errTruncated
	}
	h, w := int(binary.BigEndian.Uint16(data[i+1:])), int(binary.BigEndian.Uint16(data[i+3:]))
	if w == 0 || h == 0 {
		return header{}, fmt.Errorf("impossible size %d x %d", w, h)
	}
	if countScans(data, i+n) > maxScans {
		return header{}, fmt.Errorf("expected at most %d scans, found more", maxScans)
	}
	// A block of 8 x 8 samples takes two bits at the least (one for its DC, one
	// for its end), in a progressive scan one; chroma can be nearly nothing.
	blocks := int64((w+7)/8) * int64((h+7)/8)
	bits := int64(2)
	if marker == 0xc2 {
		bits = 1
	}
	return header{formatJPEG, w, h, blocks * bits / 8}, nil
}

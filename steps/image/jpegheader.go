package image

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// maxScans bounds the passes of a JPEG. Encoders write at most about a dozen;
// a hostile file repeats nearly empty ones, each of which walks the whole image.
const maxScans = 100

// jpegHeader walks the segments to the frame header, as lenient about bytes
// between segments as the decoder is.
func jpegHeader(data []byte) (header, error) {
	orientation := uint8(0)
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
		if m <= 1 || m >= 0xd0 && m <= 0xd7 { // Stuffing and restarts carry no length.
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
	return header{format: formatJPEG, width: w, height: h, least: blocks * bits / 8}, nil
}

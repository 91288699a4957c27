package decode

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// maxScans is the most scans of a JPEG. Encoders write about a dozen at most. A hostile file
// repeats nearly empty scans, each of which takes the time of the whole image.
const maxScans = 100

// jpegHeader reads the segments up to the frame header. Like the decoder it skips bytes
// between segments.
func jpegHeader(data []byte) (Header, error) {
	orientation := uint8(0)
	for i := 2; ; {
		marker, next := jpegMarker(data, i)
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

// jpegMarker returns the next marker that has a length, from i on, and the index of that
// length.
func jpegMarker(data []byte, i int) (marker byte, next int) {
	for i < len(data) {
		skip := bytes.IndexByte(data[i:], 0xff)
		if skip < 0 {
			break
		}
		for i += skip; i < len(data) && data[i] == 0xff; i++ { // fill bytes may precede a marker
		}
		if i == len(data) {
			break
		}
		m := data[i]
		i++
		if m <= 1 || m >= 0xd0 && m <= 0xd7 { // stuffing and restarts have no length
			continue
		}
		return m, i
	}
	return 0, len(data)
}

// countScans counts the scans from i to the end of the image, up to one too many. Bytes
// after the end of the image do not count: phones append videos there.
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
	if countScans(data, i+n) > maxScans {
		return Header{}, fmt.Errorf("expected at most %d scans, found more", maxScans)
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

package decode

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"slices"

	"github.com/tutti-server/tutti/steps/image/raster"
)

// webpRows converts the planes of lossy WebP to RGB as libwebp does: chroma is interpolated in
// both directions with weights of 9, 3, 3 and 1 ("fancy upsampling"), and the colours are
// converted in 14-bit fixed point (ITU-R BT.601, luma from 16 to 235).
type webpRows struct {
	u, v []byte
}

func (c *webpRows) row(dst []byte, m *image.YCbCr, y int) {
	w, h := m.Rect.Dx(), m.Rect.Dy()
	c.u, c.v = raster.Sized(c.u, w), raster.Sized(c.v, w)
	near, far := y/2, min(max(y/2-1+y&1*2, 0), (h+1)/2-1)
	n := (w + 1) / 2
	spread(c.u, m.Cb[near*m.CStride:][:n], m.Cb[far*m.CStride:][:n])
	spread(c.v, m.Cr[near*m.CStride:][:n], m.Cr[far*m.CStride:][:n])
	for i, luma := range m.Y[y*m.YStride:][:w] {
		p := dst[3*i : 3*i+3 : 3*i+3]
		l, u, v := int32(luma)*19077>>8, int32(c.u[i]), int32(c.v[i])
		p[0] = shift6(l + v*26149>>8 - 14234)
		p[1] = shift6(l - u*6419>>8 - v*13320>>8 + 8708)
		p[2] = shift6(l + u*33050>>8 - 17685)
	}
}

func shift6(v int32) byte { return byte(min(max(v>>6, 0), 255)) }

// spread interpolates a row of chroma at full width from the nearer and the farther of the two rows of half the width
// around it. The order of the sums is libwebp's, because the rounding depends on it.
func spread(dst, near, far []byte) {
	dst[0] = byte((3*uint32(near[0]) + uint32(far[0]) + 2) >> 2)
	for i := 1; i < len(near); i++ {
		a, b := uint32(near[i-1]), uint32(near[i])
		c, d := uint32(far[i-1]), uint32(far[i])
		sum := a + b + c + d + 8
		dst[2*i-1] = byte(((sum+2*(b+c))>>3 + a) >> 1)
		if 2*i < len(dst) {
			dst[2*i] = byte(((sum+2*(a+d))>>3 + b) >> 1)
		}
	}
	if n := len(near); len(dst) == 2*n {
		dst[2*n-1] = byte((3*uint32(near[n-1]) + uint32(far[n-1]) + 2) >> 2)
	}
}

// chunks calls use with the chunks of a RIFF body, until use returns false.
func chunks(body []byte, use func(id string, data []byte) bool) {
	for len(body) >= 8 {
		n := int(binary.LittleEndian.Uint32(body[4:]))
		data := body[8:]
		if n > len(data) {
			data = slices.Clip(data)
			n = len(data)
		}
		if !use(string(body[:4]), data[:n]) {
			return
		}
		body = data[min(n+n&1, len(data)):]
	}
}

// webpHeader reads the size from the first chunk: the canvas of an extended file (VP8X), or the image.
func webpHeader(data []byte) (Header, error) {
	if len(data) < 30 {
		return Header{}, errTruncated
	}
	h := Header{format: formatWebP}
	p := data[20:]
	switch id := string(data[12:16]); id {
	case "VP8X":
		h.width, h.height = 1+uint24(p[4:]), 1+uint24(p[7:])
		h.animated = p[0]&2 != 0
	case "VP8L":
		if p[0] != 0x2f {
			return Header{}, errors.New("no VP8L signature")
		}
		v := binary.LittleEndian.Uint32(p[1:])
		h.width, h.height = 1+int(v&0x3fff), 1+int(v>>14&0x3fff)
	case "VP8 ":
		if p[3] != 0x9d || p[4] != 1 || p[5] != 0x2a {
			return Header{}, errors.New("no key frame")
		}
		h.width, h.height = int(binary.LittleEndian.Uint16(p[6:]))&0x3fff, int(binary.LittleEndian.Uint16(p[8:]))&0x3fff
	default:
		return Header{}, fmt.Errorf("unknown first chunk %q", id)
	}
	if h.width == 0 || h.height == 0 {
		return Header{}, fmt.Errorf("impossible size %d x %d", h.width, h.height)
	}
	chunks(data[12:], func(id string, chunk []byte) bool {
		if id == "EXIF" {
			h.orientation = exifOrientation(bytes.TrimPrefix(chunk, exifMark))
		}
		return id != "EXIF"
	})
	return h, nil
}

func uint24(p []byte) int { return int(p[0]) | int(p[1])<<8 | int(p[2])<<16 }

// firstFrame returns the first frame of an animation as a WebP file that is not animated.
func firstFrame(data []byte, h Header) ([]byte, error) {
	var frame []byte
	chunks(data[12:], func(id string, chunk []byte) bool {
		if id == "ANMF" {
			frame = chunk
		}
		return frame == nil
	})
	if len(frame) < 16 {
		return nil, errors.New("an animation without frames")
	}
	if w, t := 1+uint24(frame[6:]), 1+uint24(frame[9:]); w != h.width || t != h.height {
		return nil, fmt.Errorf("unsupported animation whose first frame is %d x %d on a canvas of %d x %d", w, t, h.width, h.height)
	}
	flags := byte(0)
	if len(frame) >= 20 && string(frame[16:20]) == "ALPH" {
		flags = 16
	}
	out := []byte("RIFF\x00\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00")
	out = append(out, flags, 0, 0, 0)
	out = append(out, frame[6:12]...)
	out = append(out, frame[16:]...)
	binary.LittleEndian.PutUint32(out[4:], uint32(len(out)-8))
	return out, nil
}

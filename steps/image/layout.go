package image

import (
	"encoding/binary"
	"math"
)

// layout writes resized samples in a tensor's order and type. The 256 values
// that a sample can take are normalised once, at load.
type layout struct {
	planes bool // Channels first.
	float  bool // FP32 after normalisation; else UINT8 as they are.
	lut    [3][256]uint32
}

// normalise fills the tables with (v*scale - mean) / std as bits of a float32.
func (l *layout) normalise(scale float64, mean, std [3]float64) {
	for c := range l.lut {
		for v := range l.lut[c] {
			x := (float64(float64(v)*scale) - mean[c]) / std[c]
			l.lut[c][v] = math.Float32bits(float32(x))
		}
	}
}

// size is the number of bytes of one sample.
func (l *layout) size() int {
	if l.float {
		return 4
	}
	return 1
}

// write stores packed samples, ch to a pixel, into dst.
func (l *layout) write(dst, src []byte, ch int) {
	pixels := len(src) / ch
	for c := range ch {
		at, step := c, ch
		if l.planes {
			at, step = c*pixels, 1
		}
		if l.float {
			writeFloats(dst[4*at:], src[c:], ch, step, pixels, &l.lut[c])
		} else {
			writeBytes(dst[at:], src[c:], ch, step, pixels)
		}
	}
}

// writeFloats stores n samples of one channel: every in-th of src as every
// out-th element of dst.
func writeFloats(dst, src []byte, in, out, n int, lut *[256]uint32) {
	for i := range n {
		binary.LittleEndian.PutUint32(dst[4*i*out:], lut[src[i*in]])
	}
}

func writeBytes(dst, src []byte, in, out, n int) {
	for i := range n {
		dst[i*out] = src[i*in]
	}
}

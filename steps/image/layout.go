package image

import (
	"encoding/binary"
	"math"

	"github.com/tutti-server/tutti/core/tensor"
)

// layout writes resized samples in the order and type of the output tensor. The 256 values of a
// sample are normalised once, when the model is loaded.
type layout struct {
	width, height, ch int
	planes            bool // NCHW: channels first
	dtype             tensor.DType
	// order is which sample of a pixel each channel of the output is.
	order [3]int
	// lut maps a sample to the bits of the output, by channel: of a float32, of a half, or
	// the sample itself.
	lut [3][256]uint32
	// blank are the samples of pixels that the image does not cover.
	blank [3]byte
}

// arithmetic is the normalisation (v*scale - mean) / std.
type arithmetic struct {
	scale     float64
	mean, std [3]float64
	// each rounds every operation to FP32, as PyTorch and numpy do on FP32 tensors.
	// Otherwise only the result is rounded.
	each bool
}

// of normalises sample v of channel c.
func (a *arithmetic) of(v, c int) float32 {
	x := float64(float64(v) * a.scale)
	if a.each {
		return (float32(x) - float32(a.mean[c])) / float32(a.std[c])
	}
	return float32((x - a.mean[c]) / a.std[c])
}

// prepare fills the tables. a is not used for UINT8.
func (l *layout) prepare(a *arithmetic) {
	for c := range l.lut {
		for v := range l.lut[c] {
			switch l.dtype {
			case tensor.FP32:
				l.lut[c][v] = math.Float32bits(a.of(v, c))
			case tensor.FP16:
				l.lut[c][v] = uint32(tensor.Float32ToFP16(a.of(v, c)))
			default:
				l.lut[c][v] = uint32(v)
			}
		}
	}
}

// size returns the bytes of a sample.
func (l *layout) size() int { return l.dtype.Size() }

// bytes returns the bytes of an image.
func (l *layout) bytes() int { return l.width * l.height * l.ch * l.size() }

// row stores packed samples in row y of the output image dst, from column x on.
func (l *layout) row(dst, src []byte, x, y int) {
	at, step := y*l.width+x, l.ch
	if l.asIs() {
		copy(dst[at*l.ch:], src)
		return
	}
	n := len(src) / l.ch
	for c := range l.ch {
		from, to := src[l.order[c]:], at*l.ch+c
		if l.planes {
			to, step = c*l.width*l.height+at, 1
		}
		l.channel(dst[to*l.size():], from, step, n, &l.lut[c])
	}
}

// asIs reports whether the output has the bytes of packed samples.
func (l *layout) asIs() bool {
	return l.size() == 1 && !l.planes && (l.ch == 1 || l.order == [3]int{0, 1, 2})
}

// channel stores n samples of one channel: every ch-th sample of src as every step-th element
// of dst.
func (l *layout) channel(dst, src []byte, step, n int, lut *[256]uint32) {
	switch l.dtype {
	case tensor.FP32:
		if step == 1 && l.ch == 3 {
			plane3(dst[:4*n], src, lut)
			return
		}
		for i := range n {
			binary.LittleEndian.PutUint32(dst[4*i*step:], lut[src[i*l.ch]])
		}
	case tensor.FP16:
		for i := range n {
			binary.LittleEndian.PutUint16(dst[2*i*step:], uint16(lut[src[i*l.ch]]))
		}
	default:
		for i := range n {
			dst[i*step] = src[i*l.ch]
		}
	}
}

// plane3 is channel for FP32 planes of images with three channels, which most vision models
// take.
func plane3(dst, src []byte, lut *[256]uint32) {
	for len(dst) >= 16 && len(src) >= 12 {
		d, s := (*[16]byte)(dst), (*[12]byte)(src)
		binary.LittleEndian.PutUint64(d[:8], uint64(lut[s[0]])|uint64(lut[s[3]])<<32)
		binary.LittleEndian.PutUint64(d[8:], uint64(lut[s[6]])|uint64(lut[s[9]])<<32)
		dst, src = dst[16:], src[12:]
	}
	for len(dst) >= 4 && len(src) > 0 {
		binary.LittleEndian.PutUint32(dst, lut[src[0]])
		dst = dst[4:]
		src = src[min(3, len(src)):]
	}
}

// clear sets every pixel to blank.
func (l *layout) clear(dst []byte) {
	pixels := l.width * l.height
	for c := range l.ch {
		to, step := c, l.ch
		if l.planes {
			to, step = c*pixels, 1
		}
		v := l.lut[c][l.blank[c]]
		size := l.size()
		out := dst[to*size:]
		for i := range pixels {
			switch p := out[i*step*size:]; l.dtype {
			case tensor.FP32:
				binary.LittleEndian.PutUint32(p, v)
			case tensor.FP16:
				binary.LittleEndian.PutUint16(p, uint16(v))
			default:
				p[0] = byte(v)
			}
		}
	}
}

// target receives the rows of a resize at a place of the output. It implements resize.Sink.
type target struct {
	*layout
	dst  []byte
	x, y int // the output pixel of the first sample of the first row
}

// Put implements resize.Sink.
func (t *target) Put(i int, row []byte) { t.row(t.dst, row, t.x, t.y+i) }

package image

import (
	"encoding/binary"
	"math"

	"github.com/tutti-server/tutti/core/tensor"
)

// layout writes resized samples in a tensor's order and type. The 256 values
// that a sample can take are normalised once, at load.
type layout struct {
	width, height, ch int
	planes            bool // Channels first.
	dtype             tensor.DType
	// order says which sample of a pixel each channel of the output is.
	order [3]int
	// lut holds what each channel makes of each sample: bits of a float32, those of
	// a half, or the sample itself.
	lut [3][256]uint32
	// blank are the samples of pixels that no picture covers.
	blank [3]byte
}

// arithmetic is the normalisation (v*scale - mean) / std.
type arithmetic struct {
	scale     float64
	mean, std [3]float64
	// each rounds every operation to FP32, as PyTorch and numpy do on FP32 tensors;
	// otherwise the result alone is rounded.
	each bool
}

func (a *arithmetic) of(v, c int) float32 {
	x := float64(float64(v) * a.scale)
	if a.each {
		return (float32(x) - float32(a.mean[c])) / float32(a.std[c])
	}
	return float32((x - a.mean[c]) / a.std[c])
}

// prepare fills the tables.
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

// size is the number of bytes of one sample.
func (l *layout) size() int { return l.dtype.Size() }

// bytes is the number of bytes of one image.
func (l *layout) bytes() int { return l.width * l.height * l.ch * l.size() }

// row stores packed samples from column x of row y on.
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

// asIs tells whether the output has the samples just as they are.
func (l *layout) asIs() bool {
	return l.size() == 1 && !l.planes && (l.ch == 1 || l.order == [3]int{0, 1, 2})
}

// channel stores n samples of one channel: every ch-th of src as every step-th
// element of dst.
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

// plane3 is the case that models of pictures want: FP32 planes of three samples a
// pixel.
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

// clear makes every pixel blank.
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

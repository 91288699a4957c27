package raster

// Space is a colour space.
type Space uint8

// The colour spaces. BGR has the samples of RGB; their order is applied when the output is
// written.
const (
	RGB Space = iota
	BGR
	Gray
	YCbCr
)

// SpaceNames is indexed by Space.
var SpaceNames = []string{"rgb", "bgr", "gray", "ycbcr"}

// Channels returns the number of samples per pixel.
func (s Space) Channels() int {
	if s == Gray {
		return 1
	}
	return 3
}

// Order returns which sample of a pixel each output channel is.
func (s Space) Order() [3]int {
	if s == BGR {
		return [3]int{2, 1, 0}
	}
	return [3]int{0, 1, 2}
}

// Rows reads an Image as packed rows of a colour space: three samples per pixel, or one for
// Gray. Set points it at an image; its scratch memory is kept for the next one.
type Rows struct {
	W, H  int
	img   Image
	gray  bool
	ycc   bool   // YCbCr instead of RGB
	lines Lines  // img, where its rows need no conversion and may be in memory
	line  []byte // one row before its conversion
}

// Set points r at an image. With nil it drops the last one.
func (r *Rows) Set(img Image, to Space) {
	r.img, r.lines, r.gray, r.ycc = img, nil, to == Gray, to == YCbCr
	if img == nil {
		return
	}
	r.W, r.H = img.Size()
	if l, ok := img.(Lines); ok && !r.ycc && img.Gray() == r.gray {
		r.lines = l
	}
}

// Space returns Gray or RGB: the space that keeps the samples of r as they are.
func (r *Rows) Space() Space {
	if r.gray {
		return Gray
	}
	return RGB
}

// Channels returns the number of samples per pixel.
func (r *Rows) Channels() int { return r.Space().Channels() }

// Row writes row y, from 0 at the top, into dst, which has W*Channels() bytes.
func (r *Rows) Row(dst []byte, y int) {
	switch from := r.img.Gray(); {
	case from == r.gray:
		r.img.Row(dst, y)
		if r.ycc {
			toYCC(dst[:3*r.W])
		}
	case from:
		r.line = Sized(r.line, r.W)
		r.img.Row(r.line, y)
		for i, v := range r.line {
			p := dst[3*i : 3*i+3 : 3*i+3]
			if p[0], p[1], p[2] = v, v, v; r.ycc {
				p[1], p[2] = 128, 128
			}
		}
	default:
		r.line = Sized(r.line, 3*r.W)
		r.img.Row(r.line, y)
		toGray(dst[:r.W], r.line)
	}
}

// Peek returns row y, borrowed: the image's memory, or dst.
func (r *Rows) Peek(dst []byte, y int) []byte {
	if r.lines != nil {
		if p := r.lines.Line(y); p != nil {
			return p
		}
	}
	r.Row(dst, y)
	return dst
}

// toGray computes the luma of ITU-R BT.601 in 16-bit fixed point, as Pillow's L24 macro does.
func toGray(dst, rgb []byte) {
	for i := range dst {
		p := rgb[3*i : 3*i+3 : 3*i+3]
		dst[i] = byte((uint32(p[0])*19595 + uint32(p[1])*38470 + uint32(p[2])*7471 + 0x8000) >> 16)
	}
}

// yccTable holds what each value of R, G and B adds to Y, Cb and Cr, with 6 fraction bits.
// The numbers are those of Pillow's ConvertYCbCr.c, which rounds negative ones towards zero.
var yccTable = newYCCTable()

func newYCCTable() *[3][3][256]int16 {
	factors := [3][3]float64{{0.299, 0.587, 0.114}, {-0.16874, -0.33126, 0.5}, {0.5, -0.41869, -0.08131}}
	var t [3][3][256]int16
	for to := range t {
		for from := range t[to] {
			for v := range t[to][from] {
				t[to][from][v] = int16(float64(factors[to][from]*64*float64(v)) + 0.5)
			}
		}
	}
	return &t
}

// toYCC converts packed RGB to YCbCr in place, as Pillow does.
func toYCC(p []byte) {
	t := yccTable
	for ; len(p) >= 3; p = p[3:] {
		r, g, b := p[0], p[1], p[2]
		p[0] = byte((t[0][0][r] + t[0][1][g] + t[0][2][b]) >> 6)
		p[1] = byte((t[1][0][r]+t[1][1][g]+t[1][2][b])>>6 + 128)
		p[2] = byte((t[2][0][r]+t[2][1][g]+t[2][2][b])>>6 + 128)
	}
}

package image

// space is the colour of the output.
type space uint8

const (
	rgb space = iota
	bgr
	gray
	ycbcr
)

// spaceNames are the colours in their order.
var spaceNames = []string{"rgb", "bgr", "gray", "ycbcr"}

func (s space) channels() int {
	if s == gray {
		return 1
	}
	return 3
}

// order says which sample of a pixel each channel of the output is.
func (s space) order() [3]int {
	if s == bgr {
		return [3]int{2, 1, 0}
	}
	return [3]int{0, 1, 2}
}

// yccTable holds what each value of R, G and B adds to Y, Cb and Cr, with 6 bits of
// fraction: Pillow's numbers, whose negative ones are rounded towards zero.
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

// toLuma fills packed YCbCr with a row of grey.
func toLuma(dst, src []byte) {
	for i, v := range src {
		p := dst[3*i : 3*i+3 : 3*i+3]
		p[0], p[1], p[2] = v, 128, 128
	}
}

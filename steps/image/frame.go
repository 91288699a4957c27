package image

import (
	"encoding/binary"
	"math"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps/image/kernels"
	"github.com/tutti-server/tutti/steps/image/resize"
)

// fit is a way to bring an image to the size of the output.
type fit uint8

const (
	exact     fit = iota // stretched to the output
	shortSide            // resized by its shorter side, then cropped or padded
	letterbox            // resized to fit inside the output, then padded
	untouched            // cropped or padded only
)

// fitNames is indexed by fit.
var fitNames = []string{"exact", "short_side", "letterbox", "none"}

// frame places a part of the source in the output: the part is resized to w x h pixels, and the upper left one is pixel
// (x, y) of the output. It may reach beyond the output, or leave some of the output to be filled.
type frame struct {
	part       resize.Rect
	x, y, w, h int
}

// framing holds the parameters of fit and size.
type framing struct {
	width, height int // of the output
	fit           fit
	short         int  // length of the shorter side with shortSide
	corner        bool // anchor top_left
}

// frame places a part of the source.
func (f *framing) frame(p resize.Rect) frame {
	w, h := p.W, p.H
	switch f.fit {
	case exact:
		w, h = f.width, f.height
	case shortSide:
		if w <= h {
			w, h = f.short, f.short*h/w
		} else {
			w, h = f.short*w/h, f.short
		}
	case letterbox:
		w, h = f.inside(w, h)
	case untouched:
	}
	return frame{part: p, w: w, h: h, x: f.offset(f.width, w), y: f.offset(f.height, h)}
}

// inside returns the largest size of the same aspect ratio within the output, rounded half to
// even as Ultralytics' LetterBox does. For example, 1920 x 1080 in 640 x 640 is 640 x 360.
func (f *framing) inside(w, h int) (int, int) {
	r := min(float64(f.width)/float64(w), float64(f.height)/float64(h))
	return within(float64(w)*r, f.width), within(float64(h)*r, f.height)
}

func within(v float64, most int) int { return min(max(int(math.RoundToEven(v)), 1), most) }

// offset centres n pixels in room, as torchvision's center_crop does: an odd pixel to crop is
// cropped on the even side, an odd pixel to pad is added at the far side.
func (f *framing) offset(room, n int) int {
	switch {
	case f.corner:
		return 0
	case n > room:
		return -int(math.RoundToEven(float64(n-room) / 2))
	}
	return (room - n) / 2
}

// covers reports whether r leaves nothing of the output to be filled.
func (f *framing) covers(r *frame) bool {
	return r.x <= 0 && r.y <= 0 && r.x+r.w >= f.width && r.y+r.h >= f.height
}

// geometrySize is the number of elements of the output geometry.
const geometrySize = 6

// geometry returns the factors and offsets that map a point of the source to the output, and the
// size of the source, w x h.
func (r *frame) geometry(w, h int) [geometrySize]float32 {
	sx, sy := float64(r.w)/float64(r.part.W), float64(r.h)/float64(r.part.H)
	return [...]float32{
		float32(sx), float32(sy),
		float32(float64(r.x) - float64(float64(r.part.X)*sx)), float32(float64(r.y) - float64(float64(r.part.Y)*sy)),
		float32(w), float32(h),
	}
}

// clip rounds a box outwards to whole pixels and cuts it off at an image of w x h. It reports false for a box that is
// empty, outside or NaN. For example, -0.5, 0, 1.2, 1 gives x 0 and width 2.
func clip(x0, y0, x1, y1 float32, w, h int) (resize.Rect, bool) {
	left, top := math.Max(math.Floor(float64(x0)), 0), math.Max(math.Floor(float64(y0)), 0)
	right, bottom := math.Min(math.Ceil(float64(x1)), float64(w)), math.Min(math.Ceil(float64(y1)), float64(h))
	if !(left < right && top < bottom && x0 < x1 && y0 < y1) { // false for NaN, too
		return resize.Rect{}, false
	}
	return resize.Rect{X: int(left), Y: int(top), W: int(right - left), H: int(bottom - top)}, true
}

// layout writes resized samples in the order and type of the output tensor. The 256 values of a
// sample are normalised once, when the model is loaded.
type layout struct {
	width, height, ch int
	planes            bool // NCHW: channels first
	dtype             tensor.DType
	order             [3]int // which sample of a pixel each channel of the output is
	// lut maps a sample to the bits of the output, by channel: of a float32, of a half, or the sample itself.
	lut   [3][256]uint32
	lines *kernels.Lines // of lut, by sample; nil for none
	// blank are the samples of pixels that the image does not cover, by channel of the output, and blankRow is a packed row.
	blank    [3]byte
	blankRow []byte
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
	l.blankRow = make([]byte, l.width*l.ch)
	for i := range l.blankRow {
		l.blankRow[i-i%l.ch+l.order[i%l.ch]] = l.blank[i%l.ch]
	}
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
	if l.fast() {
		l.lines = kernels.NewLines(l.tables())
	}
}

// fast reports whether rows are stored by kernels.Planes: the output is what most vision models take.
func (l *layout) fast() bool { return l.planes && l.ch == 3 && l.dtype == tensor.FP32 }

// tables returns the tables of three channels, by sample.
func (l *layout) tables() *[3]*[256]uint32 {
	var t [3]*[256]uint32
	for c, sample := range l.order {
		t[sample] = &l.lut[c]
	}
	return &t
}

// size returns the bytes of a sample.
func (l *layout) size() int { return l.dtype.Size() }

// bytes returns the bytes of an image.
func (l *layout) bytes() int { return l.width * l.height * l.ch * l.size() }

// row stores packed samples in row y of the output image dst, from column x on.
func (l *layout) row(dst, src []byte, x, y int) {
	at, step := y*l.width+x, l.ch
	if l.size() == 1 && !l.planes && (l.ch == 1 || l.order == [3]int{0, 1, 2}) { // the output has the bytes of packed samples
		copy(dst[at*l.ch:], src)
		return
	}
	if l.fast() {
		var planes [3][]byte
		for c, sample := range l.order {
			planes[sample] = dst[4*(c*l.width*l.height+at):]
		}
		kernels.Planes(&planes, src, l.tables(), l.lines)
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

// channel stores n samples of one channel: every ch-th sample of src as every step-th element of dst.
func (l *layout) channel(dst, src []byte, step, n int, lut *[256]uint32) {
	switch l.dtype {
	case tensor.FP32:
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

// clear sets every pixel to blank.
func (l *layout) clear(dst []byte) {
	for y := range l.height {
		l.row(dst, l.blankRow, 0, y)
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

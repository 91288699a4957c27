package image

import (
	"math"

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

// frame places a part of the source in the output: the part is resized to w x h pixels, and the
// upper left one is pixel (x, y) of the output. It may reach beyond the output, or leave
// some of the output to be filled.
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

// clip rounds a box outwards to whole pixels and cuts it off at an image of w x h. It reports
// false for a box that is empty, outside or NaN. For example, -0.5, 0, 1.2, 1 gives x 0 and
// width 2.
func clip(x0, y0, x1, y1 float32, w, h int) (resize.Rect, bool) {
	left, top := math.Max(math.Floor(float64(x0)), 0), math.Max(math.Floor(float64(y0)), 0)
	right, bottom := math.Min(math.Ceil(float64(x1)), float64(w)), math.Min(math.Ceil(float64(y1)), float64(h))
	if !(left < right && top < bottom && x0 < x1 && y0 < y1) { // false for NaN, too
		return resize.Rect{}, false
	}
	return resize.Rect{X: int(left), Y: int(top), W: int(right - left), H: int(bottom - top)}, true
}

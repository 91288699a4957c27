package image

import "math"

// fit is how a picture comes to the size of the output.
type fit uint8

const (
	exact     fit = iota // Stretched to the output.
	shortSide            // Resized by its shorter side, then cut or padded.
	letterbox            // Resized to lie inside the output, then padded.
	untouched            // Cut or padded only.
)

// fitNames are the fits in their order.
var fitNames = []string{"exact", "short_side", "letterbox", "none"}

// part is a rectangle of the source, in pixels.
type part struct{ x, y, w, h int }

// frame is where a part of the source goes: resized to w x h, whose upper left
// pixel is the output's (x, y). It may lie outside the output, or leave some of it
// to be filled.
type frame struct {
	part
	x, y, w, h int
}

// framing holds the parameters that frames follow.
type framing struct {
	width, height int // Of the output.
	fit           fit
	short         int // The length that shortSide gives the shorter side.
	corner        bool
}

// frame places a part of the source.
func (f *framing) frame(p part) frame {
	w, h := p.w, p.h
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

// inside is the largest size of the same shape within the output, rounded half to
// even as the letterbox of the YOLO family is.
func (f *framing) inside(w, h int) (int, int) {
	r := min(float64(f.width)/float64(w), float64(f.height)/float64(h))
	return within(float64(w)*r, f.width), within(float64(h)*r, f.height)
}

func within(v float64, most int) int { return min(max(int(math.RoundToEven(v)), 1), most) }

// offset centres n pixels in room of them: as torchvision's center_crop does, half a
// pixel that is cut goes to the even side, and one that is padded to the far side.
func (f *framing) offset(room, n int) int {
	switch {
	case f.corner:
		return 0
	case n > room:
		return -int(math.RoundToEven(float64(n-room) / 2))
	}
	return (room - n) / 2
}

// covers says whether nothing of the output is left to be filled.
func (f *framing) covers(r *frame) bool {
	return r.x <= 0 && r.y <= 0 && r.x+r.w >= f.width && r.y+r.h >= f.height
}

// geometrySize is the number of values of geometry.
const geometrySize = 6

// geometry gives the factors and offsets that take a point of the source to the
// output, and the size of the source.
func (r *frame) geometry(w, h int) [geometrySize]float32 {
	sx, sy := float64(r.w)/float64(r.part.w), float64(r.h)/float64(r.part.h)
	return [...]float32{
		float32(sx), float32(sy),
		float32(float64(r.x) - float64(float64(r.part.x)*sx)), float32(float64(r.y) - float64(float64(r.part.y)*sy)),
		float32(w), float32(h),
	}
}

// clip gives the whole pixels of a box that lie in a picture of w x h; a box that is
// empty, outside or not a number gives none.
func clip(x0, y0, x1, y1 float32, w, h int) (part, bool) {
	left, top := math.Max(math.Floor(float64(x0)), 0), math.Max(math.Floor(float64(y0)), 0)
	right, bottom := math.Min(math.Ceil(float64(x1)), float64(w)), math.Min(math.Ceil(float64(y1)), float64(h))
	if !(left < right && top < bottom && x0 < x1 && y0 < y1) { // False for NaN, too.
		return part{}, false
	}
	return part{int(left), int(top), int(right - left), int(bottom - top)}, true
}

package crop

import (
	"errors"
	"math"

	"github.com/tutti-server/tutti/steps/image/raster"
	"github.com/tutti-server/tutti/steps/image/warp"
)

// cut returns the crop of a box.
func (s *step) cut(v []float32, img *warp.Image) (cut, error) {
	for _, f := range v {
		if f-f != 0 {
			return cut{}, errors.New("expected finite numbers")
		}
	}
	if s.xyxy {
		return aligned(v, img), nil
	}
	c := cut{}
	for i := range c.corners {
		c.corners[i] = warp.Point{X: v[2*i], Y: v[2*i+1]}
	}
	p := &c.corners
	w, h := max(length(p[0], p[1]), length(p[2], p[3])), max(length(p[0], p[3]), length(p[1], p[2]))
	if !(w <= mostPixels && h <= mostPixels) {
		return cut{}, errors.New("expected sides in pixels of an image, found larger ones")
	}
	c.w, c.h = max(int(w), 1), max(int(h), 1)
	c.turned = s.turn > 0 && float64(c.h)/float64(c.w) >= s.turn
	return c, nil
}

// length returns the distance of two points, in float32 as numpy.linalg.norm does.
func length(a, b warp.Point) float32 {
	x, y := a.X-b.X, a.Y-b.Y
	return float32(math.Sqrt(float64(float32(x*x) + float32(y*y))))
}

// aligned rounds a box outwards to whole pixels and cuts it off at the edges. What is left is at least the pixel of the
// image that is next to the box.
func aligned(v []float32, img *warp.Image) (c cut) {
	along := func(from, to float32, n int) (first, count int) {
		first = int(max(0, min(float64(n-1), math.Floor(float64(from)))))
		end := int(max(0, min(float64(n), math.Ceil(float64(to)))))
		return first, max(end-first, 1)
	}
	c.x, c.w = along(v[0], v[2], img.W)
	c.y, c.h = along(v[1], v[3], img.H)
	return c
}

// fill writes the samples of a crop.
func (s *step) fill(w *worker, dst []byte, img *warp.Image, c *cut) {
	if s.xyxy {
		for y := range c.h {
			copy(dst[3*y*c.w:][:3*c.w], img.Pix[3*((c.y+y)*img.W+c.x):])
		}
		return
	}
	out := warp.Image{Pix: dst, W: c.w, H: c.h}
	if c.turned {
		w.spare = raster.Sized(w.spare, len(dst))
		out.Pix = w.spare
	}
	right, bottom := float32(c.w), float32(c.h)
	m := warp.Transform(&c.corners, &[4]warp.Point{{}, {X: right}, {X: right, Y: bottom}, {Y: bottom}})
	back := m.Inverse()
	warp.Cubic(&out, img, &back)
	if c.turned {
		turn90(dst, &out)
	}
}

// turn90 writes an image turned by 90 degrees counter-clockwise: its right column becomes the top row.
func turn90(dst []byte, img *warp.Image) {
	for x := img.W - 1; x >= 0; x-- {
		for y := range img.H {
			copy(dst[:3], img.Pix[3*(y*img.W+x):])
			dst = dst[3:]
		}
	}
}

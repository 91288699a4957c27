package ocr

import (
	"cmp"
	"context"
	"encoding/binary"
	"math"
	"slices"

	"github.com/tutti-server/tutti/steps/image/contour"
	"github.com/tutti-server/tutti/steps/image/kernels"
	"github.com/tutti-server/tutti/steps/image/raster"
)

// textBox is a box in pixels of the image.
type textBox struct {
	corners [4]contour.Corner // clockwise from the upper left one
	score   float32
}

// finder is the scratch memory of one batch in progress.
type finder struct {
	values         []float32 // the map of the row, borrowed
	w, h           int
	imageW, imageH float32

	contours contour.Contours
	hull     contour.Hull
	offset   contour.Offset
	filler   contour.Filler
	polygon  []contour.Point
	here     []byte    // the pixels of text of a row
	above    []byte    // those of the row above
	found    []textBox // of all rows
	ends     []int     // end of each row in found
}

// find appends the boxes of the map in their order.
func (f *finder) find(ctx context.Context, o *boxOptions) error {
	f.contours.Trace(f.w, f.h, func(y int, row []byte) { f.mark(o, y, row) })
	first := len(f.found)
	for i := range min(f.contours.Len(), o.maxCandidates) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if box, ok := f.box(o, f.contours.At(i)); ok {
			f.found = append(f.found, box)
		}
	}
	order(f.found[first:], o.lineGap)
	return nil
}

// mark sets the elements of a row that are text: with dilate, also those to the right of text and below.
func (f *finder) mark(o *boxOptions, y int, row []byte) {
	values := f.values[y*f.w:][:f.w]
	if !o.dilate {
		kernels.Above(row, values, o.threshold)
		return
	}
	f.here = raster.Sized(f.here, f.w)
	if y == 0 {
		f.above = raster.Sized(f.above, f.w)
		clear(f.above)
	}
	kernels.Above(f.here, values, o.threshold)
	dilate(row, f.here, f.above)
	f.here, f.above = f.above, f.here
}

// dilate sets the elements of row where here or above has a 1, and those to the right of them. Eight are computed at a time.
func dilate(row, here, above []byte) {
	x, left := 0, uint64(0)
	for ; x+8 <= len(row); x += 8 {
		both := binary.LittleEndian.Uint64(here[x:]) | binary.LittleEndian.Uint64(above[x:])
		binary.LittleEndian.PutUint64(row[x:], both|both<<8|left)
		left = both >> 56
	}
	for ; x < len(row); x++ {
		both := here[x] | above[x]
		row[x], left = both|byte(left), uint64(both)
	}
}

// box returns the box of a contour.
func (f *finder) box(o *boxOptions, points []contour.Point) (b textBox, ok bool) {
	corners, side := f.rectangle(points)
	if side < o.minSize {
		return b, false
	}
	score := f.score(o, &corners, points)
	if o.boxThreshold > score {
		return b, false
	}
	corners, side = f.rectangle(f.offset.Of(&corners, distance(&corners, o.unclip)))
	if side < o.minSize+2 {
		return b, false
	}
	for i := range corners {
		c := &corners[i]
		c.X = rounded(c.X/float32(f.w)*f.imageW, f.imageW)
		c.Y = rounded(c.Y/float32(f.h)*f.imageH, f.imageH)
	}
	b = textBox{corners: clockwise(corners), score: float32(score)}
	for i := range b.corners {
		c := &b.corners[i]
		c.X, c.Y = min(max(c.X, 0), f.imageW-1), min(max(c.Y, 0), f.imageH-1)
	}
	c := &b.corners
	return b, float32(int(length(c[0], c[1]))) > o.minSide && float32(int(length(c[0], c[3]))) > o.minSide
}

// rounded rounds a coordinate half to even, within the image.
func rounded(v, most float32) float32 {
	return min(max(float32(math.RoundToEven(float64(v))), 0), most)
}

// length returns the distance of two points in float32.
func length(a, b contour.Corner) float32 {
	x, y := a.X-b.X, a.Y-b.Y
	return float32(math.Sqrt(float64(float32(x*x) + float32(y*y))))
}

// rectangle returns the rectangle of least area around points, and its shorter side; 0 if it has no area.
func (f *finder) rectangle(points []contour.Point) (c [4]contour.Corner, side float32) {
	if len(points) == 0 {
		return c, 0
	}
	r, ok := contour.MinRect(f.hull.Of(points))
	if !ok {
		return c, 0
	}
	c = r.Corners()
	slices.SortStableFunc(c[:], func(a, b contour.Corner) int { return cmp.Compare(a.X, b.X) })
	if c[1].Y <= c[0].Y {
		c[0], c[1] = c[1], c[0]
	}
	if c[3].Y <= c[2].Y {
		c[2], c[3] = c[3], c[2]
	}
	return [4]contour.Corner{c[0], c[2], c[3], c[1]}, min(r.Width, r.Height)
}

// score returns the mean of the map in the rectangle or in the contour.
func (f *finder) score(o *boxOptions, corners *[4]contour.Corner, points []contour.Point) float64 {
	low, high := contour.Corner{X: float32(f.w), Y: float32(f.h)}, contour.Corner{}
	add := func(x, y float32) {
		low.X, low.Y = min(low.X, x), min(low.Y, y)
		high.X, high.Y = max(high.X, x), max(high.Y, y)
	}
	f.polygon = f.polygon[:0]
	if o.slow {
		for _, p := range points {
			add(float32(p.X), float32(p.Y))
		}
	} else {
		for _, c := range corners {
			add(c.X, c.Y)
		}
	}
	within := func(v float64, n int) int { return max(0, min(n-1, int(v))) }
	x0, y0 := within(math.Floor(float64(low.X)), f.w), within(math.Floor(float64(low.Y)), f.h)
	x1, y1 := within(math.Ceil(float64(high.X)), f.w), within(math.Ceil(float64(high.Y)), f.h)
	if o.slow {
		for _, p := range points {
			f.polygon = append(f.polygon, contour.Point{X: p.X - int32(x0), Y: p.Y - int32(y0)})
		}
	} else {
		for _, c := range corners {
			f.polygon = append(f.polygon, contour.Point{X: int32(c.X - float32(x0)), Y: int32(c.Y - float32(y0))})
		}
	}
	return f.filler.Mean(f.values[y0*f.w+x0:], f.w, x1-x0+1, y1-y0+1, f.polygon)
}

// distance returns how far the sides of a rectangle are moved: its area times ratio by its circumference.
func distance(c *[4]contour.Corner, ratio float64) float64 {
	area, around := 0.0, 0.0
	for i := range c {
		p, next, before := c[i], c[(i+1)%4], c[(i+3)%4]
		if i > 0 {
			area += float64((float64(p.X) - float64(c[0].X)) * (float64(before.Y) - float64(next.Y)))
		}
		x, y := float64(next.X)-float64(p.X), float64(next.Y)-float64(p.Y)
		around += math.Sqrt(float64(x*x) + float64(y*y))
	}
	return math.Abs(area) / 2 * ratio / around
}

// clockwise orders corners from the upper left one, of the two on the left.
func clockwise(c [4]contour.Corner) [4]contour.Corner {
	slices.SortStableFunc(c[:], func(a, b contour.Corner) int { return cmp.Compare(a.X, b.X) })
	if c[1].Y < c[0].Y {
		c[0], c[1] = c[1], c[0]
	}
	if c[3].Y < c[2].Y {
		c[2], c[3] = c[3], c[2]
	}
	return [4]contour.Corner{c[0], c[2], c[3], c[1]}
}

// order sorts boxes from top to bottom, and then moves each to the left of those before it whose upper left corner is less
// than gap away in height.
func order(b []textBox, gap float32) {
	slices.SortStableFunc(b, func(p, q textBox) int {
		return cmp.Or(cmp.Compare(p.corners[0].Y, q.corners[0].Y), cmp.Compare(p.corners[0].X, q.corners[0].X))
	})
	for i := 1; i < len(b); i++ {
		for j := i; j > 0; j-- {
			p, q := b[j-1].corners[0], b[j].corners[0]
			if float32(math.Abs(float64(q.Y-p.Y))) >= gap || q.X >= p.X {
				break
			}
			b[j-1], b[j] = b[j], b[j-1]
		}
	}
}

package contour

import (
	"slices"

	"github.com/tutti-server/tutti/steps/image/raster"
)

// Filler computes means over polygons and keeps its memory for the next one. The zero value is ready for use. It is not
// safe for concurrent use.
type Filler struct {
	mask  []bool
	w, h  int
	edges []side
	cross []int64
}

// side is an edge of a polygon from row y0 to row y1: x, with 16 fraction bits, grows by dx per row.
type side struct {
	y0, y1 int
	x, dx  int64
}

const fraction = 16 // fraction bits of an x

// Mean returns the mean of values, rows of stride numbers, over the pixels of a polygon with its outline in the first w
// columns of the first h rows: cv2.mean with a mask of cv2.fillPoly. It is 0 where there are none. points are borrowed.
func (f *Filler) Mean(values []float32, stride, w, h int, points []Point) float64 {
	f.fill(w, h, points)
	sum, n := 0.0, 0
	for y := range h {
		row := values[y*stride:]
		for x, in := range f.mask[y*w:][:w] {
			if in {
				sum += float64(row[x])
				n++
			}
		}
	}
	return sum * (1 / float64(max(n, 1)))
}

// fill sets the mask.
func (f *Filler) fill(w, h int, points []Point) {
	f.w, f.h = w, h
	f.mask, f.edges = raster.Sized(f.mask, w*h), f.edges[:0]
	clear(f.mask)
	for i, q := range points {
		f.outline(points[(i+len(points)-1)%len(points)], q)
	}
	for y := range h {
		f.row(y)
	}
}

// row fills the spans of a row between pairs of edges.
func (f *Filler) row(y int) {
	f.cross = f.cross[:0]
	for _, e := range f.edges {
		if e.y0 <= y && y < e.y1 {
			f.cross = append(f.cross, e.x+int64(y-e.y0)*e.dx)
		}
	}
	slices.Sort(f.cross)
	for i := 0; i+1 < len(f.cross); i += 2 {
		from, to := (f.cross[i]+1<<fraction-1)>>fraction, f.cross[i+1]>>fraction
		for x := max(from, 0); x <= min(to, int64(f.w-1)); x++ {
			f.mask[y*f.w+int(x)] = true
		}
	}
}

// outline draws a line and adds it to the edges.
func (f *Filler) outline(p, q Point) {
	from, to := p, q
	outside := !f.inside(p) || !f.inside(q)
	if !outside || clip(f.w, f.h, &from, &to) {
		f.line(from, to)
	}
	a, b := p, q // on the line through the parts inside, where it is cut off
	if outside {
		a.X, b.X = from.X, to.X
		if from.Y != to.Y {
			a.Y, b.Y = from.Y, to.Y
		}
	}
	if p.Y == q.Y {
		return
	}
	e := side{y0: int(p.Y), y1: int(q.Y), dx: (int64(b.X) - int64(a.X)) << fraction / (int64(b.Y) - int64(a.Y))}
	e.x = int64(a.X)<<fraction + (int64(p.Y)-int64(a.Y))*e.dx
	if p.Y > q.Y {
		e.y0, e.y1 = e.y1, e.y0
		e.x = int64(b.X)<<fraction + (int64(q.Y)-int64(b.Y))*e.dx
	}
	f.edges = append(f.edges, e)
}

func (f *Filler) inside(p Point) bool {
	return p.X >= 0 && p.Y >= 0 && int(p.X) < f.w && int(p.Y) < f.h
}

// line draws a line of 8-connected pixels from its left end.
func (f *Filler) line(p, q Point) {
	if q.X < p.X {
		p, q = q, p
	}
	x, y, dx, dy, down := int(p.X), int(p.Y), int(q.X)-int(p.X), int(q.Y)-int(p.Y), 1
	if dy < 0 {
		dy, down = -dy, -1
	}
	long, short := max(dx, dy), min(dx, dy)
	e := long - 2*short
	for range long + 1 {
		f.mask[y*f.w+x] = true
		both := e < 0
		if e -= 2 * short; both {
			e += 2 * long
		}
		if both || dx >= dy {
			x++
		}
		if both || dy > dx {
			y += down
		}
	}
}

// clip cuts a line off at the edges of w x h pixels. It returns false if it lies outside; the ends may have moved.
func clip(w, h int, p, q *Point) bool {
	right, bottom := int32(w-1), int32(h-1)
	sides := func(a *Point) int {
		return bit(a.X < 0, 1) | bit(a.X > right, 2) | bit(a.Y < 0, 4) | bit(a.Y > bottom, 8)
	}
	c, d := sides(p), sides(q)
	vertical := func(a *Point, c int) int {
		if c&12 != 0 {
			at := int32(0)
			if c >= 8 {
				at = bottom
			}
			a.X += int32(float64(at-a.Y) * float64(q.X-p.X) / float64(q.Y-p.Y))
			a.Y = at
			c = sides(a) & 3
		}
		return c
	}
	horizontal := func(a *Point, c int) int {
		if c != 0 {
			at := int32(0)
			if c != 1 {
				at = right
			}
			a.Y += int32(float64(at-a.X) * float64(q.Y-p.Y) / float64(q.X-p.X))
			a.X = at
		}
		return 0
	}
	if c&d == 0 && c|d != 0 {
		c = vertical(p, c)
		d = vertical(q, d)
		if c&d == 0 && c|d != 0 {
			c = horizontal(p, c)
			d = horizontal(q, d)
		}
	}
	return c|d == 0
}

func bit(set bool, v int) int {
	if set {
		return v
	}
	return 0
}

// Package contour finds the outlines of the regions of a mask and the rectangles around them, with the results of OpenCV
// 5.0: cv2.findContours (RETR_LIST, CHAIN_APPROX_SIMPLE), cv2.convexHull, cv2.minAreaRect, cv2.boxPoints, cv2.fillPoly, and
// pyclipper's offset with JT_ROUND.
package contour

import (
	"encoding/binary"
	"math/bits"

	"github.com/tutti-server/tutti/steps/image/raster"
)

// Point is a pixel: x to the right, y down.
type Point struct{ X, Y int32 }

// Contours holds the outlines of a mask. The zero value is ready for Trace, and its memory is kept for the next mask. It
// is not safe for concurrent use.
type Contours struct {
	points []Point
	ends   []int
	marks  []byte // the mask with a border of zeros, and what has been traced
	step   int    // of a row of marks
	next   [8]int // to the neighbour in each direction, counter-clockwise from the right
}

// Len returns the number of contours.
func (c *Contours) Len() int { return len(c.ends) }

// At returns contour i in the order of OpenCV, in which the last one found is the first. It is valid until the next Trace.
func (c *Contours) At(i int) []Point {
	i = len(c.ends) - 1 - i
	first := 0
	if i > 0 {
		first = c.ends[i-1]
	}
	return c.points[first:c.ends[i]]
}

// Marks of pixels: outside, not traced, traced, traced with the background to the right.
const (
	empty   = 0
	fresh   = 1
	traced  = 2
	traced1 = 0x82
)

// moves are the directions in the order of next.
var moves = [8]Point{{1, 0}, {1, -1}, {0, -1}, {-1, -1}, {-1, 0}, {-1, 1}, {0, 1}, {1, 1}}

// Trace finds the contours of a mask of w x h pixels, those of holes among them. fill sets the elements of a row of zeros
// that belong to a region to 1. The algorithm is the border following of Suzuki and Abe (1985).
func (c *Contours) Trace(w, h int, fill func(y int, row []byte)) {
	c.points, c.ends, c.step = c.points[:0], c.ends[:0], w+2
	c.marks = raster.Sized(c.marks, (w+2)*(h+2))
	clear(c.marks)
	for i, m := range moves {
		c.next[i] = int(m.Y)*c.step + int(m.X)
	}
	for y := range h {
		fill(y, c.marks[(y+1)*c.step+1:][:w])
	}
	for y := range h {
		c.scan(y, w)
	}
}

// scan looks for the first pixels of contours in a row.
func (c *Contours) scan(y, w int) {
	at := (y+1)*c.step + 1
	before := byte(empty)
	for x := 0; x < w; x++ {
		if x = c.skip(at, x, w, before); x == w {
			return
		}
		p := c.marks[at+x]
		switch {
		case before == empty && p == fresh:
			c.follow(at+x, Point{int32(x), int32(y)}, 4)
			before = c.marks[at+x]
		case p == empty && (before == fresh || before == traced): // the edge of a hole
			c.follow(at+x-1, Point{int32(x - 1), int32(y)}, 0)
			before = c.marks[at+x]
		default:
			before = p
		}
	}
}

// skip returns the first pixel of a row from x on whose mark is not the given one; w if there is none. at is the row's first pixel.
func (c *Contours) skip(at, x, w int, mark byte) int {
	row := c.marks[at:][:w]
	eight := uint64(mark) * 0x0101010101010101
	for ; x+8 <= w; x += 8 {
		if other := binary.LittleEndian.Uint64(row[x:]) ^ eight; other != 0 {
			return x + bits.TrailingZeros64(other)/8
		}
	}
	for x < w && row[x] == mark {
		x++
	}
	return x
}

// follow appends the contour through a pixel. Its outside is in direction out.
func (c *Contours) follow(start int, p Point, out int) {
	s := out
	for {
		s = (s - 1) & 7
		if c.marks[start+c.next[s]] != empty || s == out {
			break
		}
	}
	if s == out { // a single pixel
		c.marks[start] = traced1
		c.points = append(c.points, p)
		c.ends = append(c.ends, len(c.points))
		return
	}
	last, at, before := start+c.next[s], start, s^4
	for {
		from := s
		for s++; c.marks[at+c.next[s&7]] == empty && s < 15; {
			s++
		}
		s &= 7
		to := at + c.next[s]
		if s > 0 && s-1 < from {
			c.marks[at] = traced1
		} else if c.marks[at] == fresh {
			c.marks[at] = traced
		}
		if s != before {
			c.points = append(c.points, p)
		}
		before = s
		p.X, p.Y = p.X+moves[s].X, p.Y+moves[s].Y
		if to == start && at == last {
			break
		}
		at, s = to, (s+4)&7
	}
	c.ends = append(c.ends, len(c.points))
}

package contour

import (
	"math"
	"slices"
)

// Offset moves the sides of polygons outwards and keeps its memory for the next one. The zero value is ready for use. It
// is not safe for concurrent use.
type Offset struct {
	path    []Point
	normals [][2]float64
	out     []Point
}

// Of returns the polygon at a distance, above 0, around corners, which are rounded down to whole pixels towards 0: the
// result of pyclipper's JT_ROUND with its default tolerance, in its order, if the polygon is convex. It is empty for
// corners of fewer than three pixels. The result is valid until the next call.
func (o *Offset) Of(corners *[4]Corner, distance float64) []Point {
	o.path = o.path[:0]
	for _, c := range corners {
		if p := (Point{int32(c.X), int32(c.Y)}); len(o.path) == 0 || p != o.path[len(o.path)-1] {
			o.path = append(o.path, p)
		}
	}
	for len(o.path) > 1 && o.path[0] == o.path[len(o.path)-1] {
		o.path = o.path[:len(o.path)-1]
	}
	if len(o.path) < 3 {
		return nil
	}
	if area(o.path) < 0 {
		slices.Reverse(o.path)
	}
	o.round(distance)
	o.clean()
	o.rotate()
	return o.out
}

// area returns twice the area of a polygon, negative if it goes counter-clockwise on the screen.
func area(p []Point) (a float64) {
	j := len(p) - 1
	for i := range p {
		a -= (float64(p[j].X) + float64(p[i].X)) * (float64(p[j].Y) - float64(p[i].Y))
		j = i
	}
	return a
}

// arc is the distance of the chords of a rounded corner from the circle.
const arc = 0.25

// round fills out with the corners of path as arcs.
func (o *Offset) round(distance float64) {
	o.normals, o.out = o.normals[:0], o.out[:0]
	for i, p := range o.path {
		q := o.path[(i+1)%len(o.path)]
		dx, dy := float64(q.X)-float64(p.X), float64(q.Y)-float64(p.Y)
		f := 1 / math.Sqrt(float64(dx*dx)+float64(dy*dy))
		o.normals = append(o.normals, [2]float64{dy * f, -(dx * f)})
	}
	turn := min(math.Pi/math.Acos(1-min(arc, distance*arc)/distance), distance*math.Pi) // chords of a circle
	k := len(o.path) - 1
	for j := range o.path {
		if o.corner(j, k, distance, turn) {
			k = j
		}
	}
}

// add appends corner j moved along a normal.
func (o *Offset) add(j int, n [2]float64, distance float64) {
	p := o.path[j]
	o.out = append(o.out, Point{whole(float64(p.X) + float64(n[0]*distance)), whole(float64(p.Y) + float64(n[1]*distance))})
}

// whole rounds half away from 0.
func whole(v float64) int32 {
	if v < 0 {
		return int32(v - 0.5)
	}
	return int32(v + 0.5)
}

// corner appends the points for corner j, between the sides with normals k and j. It returns false where the two have
// about the same direction, and the side before counts for the next corner as well.
func (o *Offset) corner(j, k int, distance, turn float64) bool {
	a, b := o.normals[k], o.normals[j]
	sin, cos := float64(a[0]*b[1])-float64(b[0]*a[1]), float64(a[0]*b[0])+float64(b[1]*a[1])
	if math.Abs(sin*distance) < 1 {
		if cos > 0 {
			o.add(j, a, distance)
			return false
		}
	} else {
		sin = max(-1, min(1, sin))
	}
	if sin*distance < 0 { // concave
		o.add(j, a, distance)
		o.out = append(o.out, o.path[j])
		o.add(j, b, distance)
		return true
	}
	s, c := math.Sincos(2 * math.Pi / turn)
	n := a
	for range max(whole(turn/(2*math.Pi)*math.Abs(math.Atan2(sin, cos))), 1) {
		o.add(j, n, distance)
		n = [2]float64{float64(n[0]*c) - float64(s*n[1]), float64(n[0]*s) + float64(n[1]*c)}
	}
	o.add(j, b, distance)
	return true
}

// clean removes points that equal a neighbour or lie on a line with both.
func (o *Offset) clean() {
	for changed := true; changed; {
		changed = false
		for i := 0; i < len(o.out) && len(o.out) > 2; i++ {
			n := len(o.out)
			a, b, c := o.out[(i+n-1)%n], o.out[i], o.out[(i+1)%n]
			if (int64(b.X)-int64(a.X))*(int64(c.Y)-int64(b.Y)) == (int64(b.Y)-int64(a.Y))*(int64(c.X)-int64(b.X)) {
				o.out = slices.Delete(o.out, i, i+1)
				changed = true
				i--
			}
		}
	}
}

// rotate moves the vertex after the topmost one, of several the rightmost, to the front, where Clipper's sweep ends.
func (o *Offset) rotate() {
	top := 0
	for i, p := range o.out {
		if q := o.out[top]; p.Y < q.Y || p.Y == q.Y && p.X > q.X {
			top = i
		}
	}
	first := (top + 1) % max(len(o.out), 1)
	slices.Reverse(o.out[:first])
	slices.Reverse(o.out[first:])
	slices.Reverse(o.out)
}

package contour

import "math"

// Corner is a corner of a rectangle.
type Corner struct{ X, Y float32 }

// Rect is a rectangle at any angle.
type Rect struct {
	X, Y          float32 // the centre
	Width, Height float32
	Angle         float32 // in degrees, from -90 to below 0
}

// MinRect returns the rectangle of the least area around a convex hull, as cv2.minAreaRect does. ok is false for a hull
// without area.
func MinRect(hull []Point) (r Rect, ok bool) {
	if len(hull) < 3 {
		return Rect{}, false
	}
	c := calipers(hull)
	ux, uy := float32(c.a*c.width), float32(c.b*c.width)
	vx, vy := float32(-c.b*c.height), float32(c.a*c.height)
	px, py := c.corner(hull)
	r = Rect{
		X: px + float32((ux+vx)*0.5), Y: py + float32((uy+vy)*0.5),
		Width: hypot(vx, vy), Height: hypot(ux, uy), Angle: -90,
	}
	if ux == 0 && uy > 0 {
		r.Width, r.Height = r.Height, r.Width
	} else {
		r.Angle = float32(-math.Atan2(float64(ux), float64(uy)) * 180 / math.Pi)
	}
	return r, true
}

func hypot(x, y float32) float32 {
	return float32(math.Sqrt(float64(float64(x)*float64(x)) + float64(float64(y)*float64(y))))
}

// Corners returns the corners as cv2.boxPoints does.
func (r *Rect) Corners() [4]Corner {
	angle := float64(r.Angle) * math.Pi / 180
	b, a := float32(math.Cos(angle))*0.5, float32(math.Sin(angle))*0.5
	ah, aw, bh, bw := float32(a*r.Height), float32(a*r.Width), float32(b*r.Height), float32(b*r.Width)
	return [4]Corner{
		{r.X - ah - bw, r.Y + bh - aw},
		{r.X + ah - bw, r.Y - bh - aw},
		{r.X + ah + bw, r.Y - bh + aw},
		{r.X - ah + bw, r.Y + bh + aw},
	}
}

// caliper is a position of the rotating calipers: a unit vector (a, b) along the side, the extents, and the vertices that
// touch the left side and the bottom.
type caliper struct {
	a, b, width, height float32
	left, bottom        int
}

// corner returns the intersection of the left side and the bottom.
func (c *caliper) corner(hull []Point) (x, y float32) {
	at := func(i int) (x, y float32) { return float32(hull[i].X), float32(hull[i].Y) }
	a1, b1, a2, b2 := c.a, c.b, -c.b, c.a
	lx, ly := at(c.left)
	bx, by := at(c.bottom)
	c1, c2 := float32(a1*lx)+float32(ly*b1), float32(a2*bx)+float32(by*b2)
	inverse := 1 / (float32(a1*b2) - float32(a2*b1))
	return (float32(c1*b2) - float32(c2*b1)) * inverse, (float32(a1*c2) - float32(a2*c1)) * inverse
}

// edge returns the vector from vertex i of a hull to the next one.
func edge(hull []Point, i int) (x, y float32) {
	p, q := hull[i], hull[(i+1)%len(hull)]
	return float32(q.X) - float32(p.X), float32(q.Y) - float32(p.Y)
}

// calipers rotates a rectangle around the hull and returns the position of the least area; of equal ones, the last.
func calipers(hull []Point) (best caliper) {
	seq := extremes(hull)
	c, least := caliper{a: 1}, float32(math.MaxFloat32)
	for range hull {
		k := firstEdge(hull, &seq)
		x, y := edge(hull, seq[k])
		inverse := float32(1 / math.Sqrt(float64(float64(x)*float64(x))+float64(float64(y)*float64(y))))
		x, y = float32(x*inverse), float32(y*inverse)
		c.a, c.b = [4]float32{x, y, -x, -y}[k], [4]float32{y, -x, -y, x}[k]
		seq[k] = (seq[k] + 1) % len(hull)
		between := func(from, to int) (x, y float32) {
			p, q := hull[seq[from]], hull[seq[to]]
			return float32(q.X) - float32(p.X), float32(q.Y) - float32(p.Y)
		}
		dx, dy := between(3, 1)
		c.width = float32(dx*c.a) + float32(dy*c.b)
		dx, dy = between(0, 2)
		c.height = float32(-dx*c.b) + float32(dy*c.a)
		if area := float32(c.width * c.height); area <= least {
			least, c.left, c.bottom = area, seq[3], seq[0]
			best = c
		}
	}
	return best
}

// extremes returns the first vertices of least y, greatest x, greatest y and least x.
func extremes(hull []Point) (seq [4]int) {
	for i, p := range hull {
		if p.Y < hull[seq[0]].Y {
			seq[0] = i
		}
		if p.X > hull[seq[1]].X {
			seq[1] = i
		}
		if p.Y > hull[seq[2]].Y {
			seq[2] = i
		}
		if p.X < hull[seq[3]].X {
			seq[3] = i
		}
	}
	return seq
}

// firstEdge returns the side of the rectangle that reaches an edge first when it rotates.
func firstEdge(hull []Point, seq *[4]int) int {
	var v [4][2]float32
	for i, at := range seq {
		x, y := edge(hull, at)
		v[i] = [4][2]float32{{x, y}, {y, -x}, {-x, -y}, {-y, x}}[i]
	}
	first := 0
	for i := 1; i < 4; i++ {
		a, b := v[i], v[first]
		if float32(a[1]*b[0])+float32(-a[0]*b[1]) < 0 {
			first = i
		}
	}
	return first
}

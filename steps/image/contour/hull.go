package contour

import (
	"cmp"
	"slices"

	"github.com/tutti-server/tutti/steps/image/raster"
)

// Hull computes convex hulls and keeps its memory for the next one. The zero value is ready for use. It is not safe for
// concurrent use.
type Hull struct {
	sorted []int32 // indices of the points by x, then y
	stack  []int32
	found  []int32
	hull   []Point
}

// Of returns the vertices of the convex hull of points, which must not be empty, in the order of cv2.convexHull. The
// result is valid until the next call.
func (h *Hull) Of(points []Point) []Point {
	n := len(points)
	h.sorted, h.stack, h.found, h.hull = raster.Sized(h.sorted, n), raster.Sized(h.stack, 2*n+8), h.found[:0], h.hull[:0]
	for i := range h.sorted {
		h.sorted[i] = int32(i)
	}
	slices.SortFunc(h.sorted, func(a, b int32) int {
		p, q := points[a], points[b]
		return cmp.Or(cmp.Compare(p.X, q.X), cmp.Compare(p.Y, q.Y), cmp.Compare(a, b))
	})
	if points[h.sorted[0]] == points[h.sorted[n-1]] {
		return append(h.hull, points[h.sorted[0]])
	}
	h.halves(points)
	for i, at := range h.found {
		h.found[i] = h.sorted[at]
	}
	h.rotate()
	for _, at := range h.found {
		h.hull = append(h.hull, points[at])
	}
	return h.hull
}

// halves appends the positions in sorted of the vertices: the half of large y from the right to the left, then the other.
func (h *Hull) halves(points []Point) {
	at := func(i int) Point { return points[h.sorted[i]] }
	n, low, high := len(h.sorted), 0, 0
	for i := range h.sorted {
		if at(i).Y < at(low).Y {
			low = i
		}
		if at(i).Y > at(high).Y {
			high = i
		}
	}
	left := h.chain(h.stack, points, 0, high, -1, 1)
	right := h.chain(h.stack[len(left):], points, n-1, high, -1, -1)
	h.join(right, left)
	stop := int32(-1)
	if len(left) > 2 {
		stop = left[1]
	} else if len(right) > 2 {
		stop = right[len(right)-2]
	}
	left = h.chain(h.stack, points, 0, low, 1, -1)
	right = h.chain(h.stack[len(left):], points, n-1, low, 1, 1)
	if check := second(left, right); stop >= 0 && check >= 0 && at(int(check)) == at(int(stop)) { // all points are on a line
		left, right = left[:min(len(left), 2)], right[:min(len(right), 2)]
	}
	h.join(left, right)
}

// second returns the vertex after the first one of two chains, or -1.
func second(a, b []int32) int32 {
	switch {
	case len(a) > 2:
		return a[1]
	case len(a)+len(b) > 2:
		return b[2-len(a)]
	}
	return -1
}

// join appends chain a without its end, and chain b from its end on without its start.
func (h *Hull) join(a, b []int32) {
	h.found = append(h.found, a[:len(a)-1]...)
	for i := len(b) - 1; i > 0; i-- {
		h.found = append(h.found, b[i])
	}
}

// chain returns the vertices of a quarter of the hull, from position start in sorted to end: Sklansky's algorithm. skip is
// the sign of dy of edges that lead back, and turn that of a convex corner. The result is in stack.
func (h *Hull) chain(stack []int32, points []Point, start, end, skip, turn int) []int32 {
	at := func(i int) Point { return points[h.sorted[i]] }
	if start == end || at(start) == at(end) {
		stack[0] = int32(start)
		return stack[:1]
	}
	step := 1
	if end < start {
		step = -1
	}
	before, here, next, n := start, start+step, start+2*step, 3
	stack[0], stack[1], stack[2] = int32(before), int32(here), int32(next)
	for end += step; next != end; {
		p, q := at(here), at(next)
		if by := int(q.Y) - int(p.Y); sign(by) != skip {
			o := at(before)
			ax, ay := int(p.X)-int(o.X), int(p.Y)-int(o.Y)
			if convex := ay*(int(q.X)-int(p.X)) - ax*by; sign(convex) == turn && (ax != 0 || ay != 0) {
				before, here, next = here, next, next+step
				stack[n] = int32(next)
				n++
			} else if before == start {
				here, next = next, next+step
				stack[1], stack[2] = int32(here), int32(next)
			} else {
				stack[n-2] = int32(next)
				here, before = before, int(stack[n-4])
				n--
			}
		} else {
			next += step
			stack[n-1] = int32(next)
		}
	}
	return stack[:n-1]
}

func sign(v int) int { return cmp.Compare(v, 0) }

// rotate makes the indices of the vertices ascend or descend, if a cyclic shift can.
func (h *Hull) rotate() {
	f, n := h.found, len(h.found)
	if n < 3 {
		return
	}
	low, high, rises := 0, 0, 0
	for i := 1; i < n; i++ {
		if f[i-1] < f[i] {
			rises++
		}
		if rises > 1 && rises <= i-2 {
			break
		}
		if f[i] < f[low] {
			low = i
		}
		if f[i] > f[high] {
			high = i
		}
	}
	if d := max(high-low, low-high); (d != 1 && d != n-1) || (rises > 1 && rises < n-2) {
		return
	}
	ascending := (high+1)%n == low
	from := high
	if ascending {
		from = low
	}
	for i := range n - 1 {
		if a, b := f[(from+i)%n], f[(from+i+1)%n]; ascending != (a < b) {
			return
		}
	}
	h.stack = append(append(h.stack[:0], f[from:]...), f[:from]...)
	copy(f, h.stack)
}

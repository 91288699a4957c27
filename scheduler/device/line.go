package device

// line is who waits: who would first have had its share goes first, among equals who
// needs least time for it, and then in the order of arrival.
type line []*Limiter

// before reports whether g goes before h, whoever came first.
func (g *Limiter) before(h *Limiter) bool {
	if a, b := g.end(), h.end(); a != b {
		return a < b
	}
	return g.priority < h.priority
}

// end is what the instance will have had with its next execution.
func (g *Limiter) end() int64 { return g.tag + g.priority }

// add puts g in its place.
func (l *line) add(g *Limiter) {
	*l = append(*l, g)
	list := *l
	i := len(list) - 1
	for ; i > 0 && g.before(list[i-1]); i-- {
		list[i] = list[i-1]
	}
	list[i] = g
}

// remove takes out the i-th.
func (l *line) remove(i int) {
	list := *l
	copy(list[i:], list[i+1:])
	list[len(list)-1] = nil
	*l = list[:len(list)-1]
}

// index returns where g is, or -1.
func (l line) index(g *Limiter) int {
	for i := range l {
		if l[i] == g {
			return i
		}
	}
	return -1
}

// next returns the first of the line whose needs are met by what is free, or -1. What
// an earlier one needs is kept for it, whether it is there yet or not: so what it
// lacks gathers until it has all. left is scratch of the size of free.
//
// It is pure: the same line and the same free resources give the same answer.
func (l line) next(free, left []int64) int {
	copy(left, free)
	for i, g := range l {
		if g.fits(left) {
			return i
		}
		for _, n := range g.needs {
			left[n.resource] -= n.count
		}
	}
	return -1
}

// fits reports whether all that g needs is there.
func (g *Limiter) fits(left []int64) bool {
	for _, n := range g.needs {
		if left[n.resource] < n.count {
			return false
		}
	}
	return true
}

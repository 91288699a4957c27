package device

// waitList has the waiting instances in order: the lowest tag after the next execution first, then the lowest
// priority value, then the order of arrival.
type waitList []*Limiter

// before reports whether g goes before h, whichever arrived first.
func (g *Limiter) before(h *Limiter) bool {
	if a, b := g.end(), h.end(); a != b {
		return a < b
	}
	return g.priority < h.priority
}

// end is the tag of the instance after its next execution.
func (g *Limiter) end() int64 { return g.tag + g.priority }

// add inserts g in order.
func (l *waitList) add(g *Limiter) {
	*l = append(*l, g)
	list := *l
	i := len(list) - 1
	for ; i > 0 && g.before(list[i-1]); i-- {
		list[i] = list[i-1]
	}
	list[i] = g
}

// remove removes the i-th instance.
func (l *waitList) remove(i int) {
	list := *l
	copy(list[i:], list[i+1:])
	list[len(list)-1] = nil
	*l = list[:len(list)-1]
}

// index returns the position of g, or -1.
func (l waitList) index(g *Limiter) int {
	for i := range l {
		if l[i] == g {
			return i
		}
	}
	return -1
}

// next returns the position of the first instance whose needs are met by free, or -1. The needs of an earlier
// instance are reserved for it, even if they are not all free yet, so that they accumulate until it can execute.
// left is scratch of the size of free.
//
// It is pure: the same list and the same free resources give the same result.
func (l waitList) next(free, left []int64) int {
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

// fits reports whether left covers all that g needs.
func (g *Limiter) fits(left []int64) bool {
	for _, n := range g.needs {
		if left[n.resource] < n.count {
			return false
		}
	}
	return true
}

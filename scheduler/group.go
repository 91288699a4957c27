package scheduler

// group holds the queued works of one shape in lanes, in order of service.
type group struct {
	key   uint64
	lanes []lane // those that hold works, by rank
	pos   int    // in the heap; nowhere when empty
}

// lane is a line of works of one rank: a priority level, before or after their time
// was over.
type lane struct {
	rank       uint64
	head, tail *Task
}

// spot is where a work stands in a queue.
type spot struct {
	group      *group
	prev, next *Task // in the lane
	level      *level
	rank       uint64 // in the order of service: odd behind the others of its level
	arrival    uint64 // counts works
	slot       int16  // in the wheel, or nowhere

	expires       int64 // when the queue policy's timeout is over, 0 for never
	due           int64 // when to look at the work, 0 for never
	before, after *Task // in the wheel's slot
}

// find returns where the lane of a rank is, or belongs.
func (g *group) find(rank uint64) int {
	lo, hi := 0, len(g.lanes)
	for lo < hi {
		if mid := (lo + hi) / 2; g.lanes[mid].rank < rank {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// push appends w to the lane of its rank.
func (g *group) push(w *Task) {
	i := g.find(w.queued.at.rank)
	if i == len(g.lanes) || g.lanes[i].rank != w.queued.at.rank {
		g.lanes = append(g.lanes, lane{})
		copy(g.lanes[i+1:], g.lanes[i:])
		g.lanes[i] = lane{rank: w.queued.at.rank}
	}
	l := &g.lanes[i]
	w.queued.at.group, w.queued.at.prev, w.queued.at.next = g, l.tail, nil
	if l.tail == nil {
		l.head = w
	} else {
		l.tail.queued.at.next = w
	}
	l.tail = w
}

// remove takes w out of its lane and reports whether it was the group's first.
func (g *group) remove(w *Task) (first bool) {
	i := g.find(w.queued.at.rank)
	l := &g.lanes[i]
	first = i == 0 && l.head == w
	if w.queued.at.prev == nil {
		l.head = w.queued.at.next
	} else {
		w.queued.at.prev.queued.at.next = w.queued.at.next
	}
	if w.queued.at.next == nil {
		l.tail = w.queued.at.prev
	} else {
		w.queued.at.next.queued.at.prev = w.queued.at.prev
	}
	if l.head == nil {
		last := len(g.lanes) - 1
		copy(g.lanes[i:], g.lanes[i+1:])
		g.lanes[last] = lane{}
		g.lanes = g.lanes[:last]
	}
	w.queued.at.group, w.queued.at.prev, w.queued.at.next = nil, nil, nil
	return first
}

// after returns the work that follows w, nil when w is the last; with nil it returns
// the first.
func (g *group) after(w *Task) *Task {
	switch {
	case w == nil:
		if len(g.lanes) == 0 {
			return nil
		}
		return g.lanes[0].head
	case w.queued.at.next != nil:
		return w.queued.at.next
	}
	if i := g.find(w.queued.at.rank) + 1; i < len(g.lanes) {
		return g.lanes[i].head
	}
	return nil
}

// before reports whether g's first work is served before h's.
func (g *group) before(h *group) bool {
	a, b := &g.lanes[0], &h.lanes[0]
	if a.rank != b.rank {
		return a.rank < b.rank
	}
	return a.head.queued.at.arrival < b.head.queued.at.arrival
}

// groups is a heap of the groups that hold works, the one to serve first in front.
type groups []*group

func (h groups) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].pos, h[j].pos = i, j
}

func (h groups) up(i int) {
	for i > 0 && h[i].before(h[(i-1)/2]) {
		h.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
}

func (h groups) down(i int) {
	for {
		first := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(h); child++ {
			if h[child].before(h[first]) {
				first = child
			}
		}
		if first == i {
			return
		}
		h.swap(i, first)
		i = first
	}
}

func (h *groups) add(g *group) {
	g.pos = len(*h)
	*h = append(*h, g)
	h.up(g.pos)
}

func (h *groups) remove(g *group) {
	i, last := g.pos, len(*h)-1
	if i != last {
		h.swap(i, last)
	}
	(*h)[last] = nil
	*h = (*h)[:last]
	g.pos = nowhere
	if i < last {
		h.down(i)
		h.up(i)
	}
}

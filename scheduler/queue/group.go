package queue

import "github.com/tutti-server/tutti/scheduler"

// entry is a task in a backlog.
type entry struct {
	task       *scheduler.Task
	group      *group
	prev, next *entry // in the lane
	level      *level
	rank       uint64 // in the order of service: odd behind the others of its level
	arrival    uint64 // counts entries
	slot       int16  // in the timing wheel, or nowhere

	expires       int64  // when the queue policy's timeout ends, 0 for never
	due           int64  // when to check the task, 0 for never
	before, after *entry // in the wheel's slot
}

// group holds the queued tasks of one shape, by lanes in order of service.
type group struct {
	key   uint64
	lanes []lane // those that hold tasks, by rank
	pos   int    // in the heap; nowhere when empty
}

// lane is a list of tasks of one rank: a priority level, before or after their timeout.
type lane struct {
	rank       uint64
	head, tail *entry
}

// find returns the position of a rank's lane, or where to insert it.
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

// push appends e to the lane of its rank.
func (g *group) push(e *entry) {
	i := g.find(e.rank)
	if i == len(g.lanes) || g.lanes[i].rank != e.rank {
		g.lanes = append(g.lanes, lane{})
		copy(g.lanes[i+1:], g.lanes[i:])
		g.lanes[i] = lane{rank: e.rank}
	}
	l := &g.lanes[i]
	e.group, e.prev, e.next = g, l.tail, nil
	if l.tail == nil {
		l.head = e
	} else {
		l.tail.next = e
	}
	l.tail = e
}

// remove takes e out of its lane and reports whether it was the first of the group.
func (g *group) remove(e *entry) (first bool) {
	i := g.find(e.rank)
	l := &g.lanes[i]
	first = i == 0 && l.head == e
	if e.prev == nil {
		l.head = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		l.tail = e.prev
	} else {
		e.next.prev = e.prev
	}
	if l.head == nil {
		last := len(g.lanes) - 1
		copy(g.lanes[i:], g.lanes[i+1:])
		g.lanes[last] = lane{}
		g.lanes = g.lanes[:last]
	}
	e.group, e.prev, e.next = nil, nil, nil
	return first
}

// after returns the entry that follows e, the first one for nil, and nil behind the last.
func (g *group) after(e *entry) *entry {
	switch {
	case e == nil:
		if len(g.lanes) == 0 {
			return nil
		}
		return g.lanes[0].head
	case e.next != nil:
		return e.next
	}
	if i := g.find(e.rank) + 1; i < len(g.lanes) {
		return g.lanes[i].head
	}
	return nil
}

// before reports whether g's first task is served before h's.
func (g *group) before(h *group) bool {
	a, b := &g.lanes[0], &h.lanes[0]
	if a.rank != b.rank {
		return a.rank < b.rank
	}
	return a.head.arrival < b.head.arrival
}

// groups is a binary heap of the groups that hold tasks, the one to serve next in front. It is
// not container/heap, whose interface calls would cost more than the comparisons.
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

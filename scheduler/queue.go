package scheduler

// queue is a ring of works in order of arrival.
type queue struct {
	ring []*Work // its length is a power of two, or zero
	head int
	n    int
}

func (q *queue) len() int { return q.n }

func (q *queue) slot(i int) **Work { return &q.ring[(q.head+i)&(len(q.ring)-1)] }

// at returns the work at position i, 0 being the oldest.
func (q *queue) at(i int) *Work { return *q.slot(i) }

func (q *queue) push(w *Work) {
	if q.n == len(q.ring) {
		q.grow()
	}
	*q.slot(q.n) = w
	q.n++
}

func (q *queue) grow() {
	ring := make([]*Work, max(16, 2*len(q.ring)))
	for i := range q.n {
		ring[i] = q.at(i)
	}
	q.ring, q.head = ring, 0
}

// remove takes out the works among the first n for which out says so, keeping the
// order of the others. It costs O(n) however long the queue is.
func (q *queue) remove(n int, out func(i int, w *Work) bool) List {
	var gone List
	kept := n
	for i := n - 1; i >= 0; i-- {
		w := q.at(i)
		if out(i, w) {
			w.next = gone.Head
			gone.Head = w
			if gone.tail == nil {
				gone.tail = w
			}
			gone.n++
			continue
		}
		kept--
		*q.slot(kept) = w
	}
	for i := range kept {
		*q.slot(i) = nil
	}
	if len(q.ring) > 0 {
		q.head = (q.head + kept) & (len(q.ring) - 1)
	}
	q.n -= kept
	return gone
}

// sweep removes works whose clients have gone until none is left among the first n.
func (q *queue) sweep(n int) List {
	looked, live := 0, 0
	for ; looked < q.n && live < n; looked++ {
		if q.at(looked).Ctx.Err() == nil {
			live++
		}
	}
	if live == looked {
		return List{}
	}
	return q.remove(looked, func(_ int, w *Work) bool { return w.Ctx.Err() != nil })
}

// take removes the works at the given ascending positions, apart from those that
// cannot share a batch with the first of them.
func (q *queue) take(positions []int32, compatible func(a, b *Work) bool) List {
	first := q.at(int(positions[0]))
	last := len(positions) - 1
	return q.remove(int(positions[last])+1, func(i int, w *Work) bool {
		for last >= 0 && int(positions[last]) > i {
			last--
		}
		return last >= 0 && int(positions[last]) == i && (w == first || compatible(first, w))
	})
}

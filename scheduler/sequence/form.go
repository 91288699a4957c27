package sequence

import (
	"time"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/scheduler"
)

// window bounds how many ready sequences a decision considers.
const window = 128

// holding reports whether the test hooks still delay batches.
func (b *batcher) holding() bool {
	if !b.held {
		return false
	}
	backlog, slots := 0, 0
	for _, s := range b.backlog.list {
		backlog += s.queue.Len()
	}
	for _, l := range b.instances {
		if slots += l.ready.n; b.rules.Oldest {
			continue // a batcher gets one request of a sequence at a time
		}
		for s := l.ready.head; s != nil; s = s.next {
			slots += s.queue.Len() - 1
		}
	}
	b.held = !b.flush && (slots < b.rules.Queued || backlog < b.rules.Backlog)
	return b.held
}

// startable reports whether a free instance has requests and does not wait for its limiter.
func (b *batcher) startable() bool {
	for _, l := range b.instances {
		if !l.busy && l.ready.n > 0 && !l.lease.Waiting() {
			return !b.holding()
		}
	}
	return false
}

// next forms a batch on a free and admitted instance, nil without one; wait, unless 0, is when to try again.
func (b *batcher) next(now int64, dropped *scheduler.TaskList) (at *instance, wait time.Duration) {
	if b.holding() {
		return nil, 0
	}
	defer b.releaseUnused()
	for _, l := range b.instances {
		if l.busy {
			continue
		}
		b.purge(l, now, dropped)
		d, ok := time.Duration(0), l.ready.n > 0
		if ok && b.rules.Oldest {
			d, ok = b.oldest(l, now)
		} else if ok {
			d, ok = b.direct(l, now)
		}
		switch {
		case !ok:
			l.lease.Release(false) // admitted for requests that have expired since
			if d > 0 && (wait == 0 || d < wait) {
				wait = d
			}
		case l.lease.Acquire():
			b.takeAll(l)
			l.busy = true
			return l, 0
		}
	}
	return nil, wait
}

// releaseUnused releases the leases of admitted instances that have nothing to execute.
func (b *batcher) releaseUnused() {
	for _, l := range b.instances {
		if !l.busy && l.ready.n == 0 {
			l.lease.Release(false)
		}
	}
}

// purge drops expired requests among those that a decision considers.
func (b *batcher) purge(l *instance, now int64, dropped *scheduler.TaskList) {
	look := window
	if !b.rules.Oldest {
		look = len(l.slots)
	}
	var live *sequence // the last one that stays
	for n := 0; n < look; {
		s := l.ready.head
		if live != nil {
			s = live.next
		}
		if s == nil {
			return
		}
		if s.head().Expired(now) != nil {
			b.dropGone(s, now, dropped) // the slot's next sequence is appended
			continue
		}
		live = s
		n++
	}
}

// direct sets a batch whose rows are the slots.
func (b *batcher) direct(l *instance, now int64) (wait time.Duration, ok bool) {
	if wait := b.utilize(l, now); wait > 0 {
		return wait, false
	}
	first, last := l.ready.head, 0
	for i, sl := range l.slots {
		if sl.seq != nil {
			last = i
		}
	}
	l.batch = l.batch[:0]
	for _, sl := range l.slots[:last+1] {
		if s := sl.seq; s == nil || s.state != ready || s != first && !canShareBatch(first, s) {
			sl = nil
		}
		l.batch = append(l.batch, sl)
	}
	return 0, true
}

// utilize returns how long to wait until more of the slots are ready.
func (b *batcher) utilize(l *instance, now int64) time.Duration {
	if b.flush || b.rules.Delay == 0 || float32(l.ready.n)/float32(b.rules.Slots) >= b.rules.Utilization {
		return 0
	}
	since := now
	for s := l.ready.head; s != nil; s = s.next {
		since = min(since, s.head().Enqueued)
	}
	return b.rules.Delay - time.Duration(now-since)
}

// oldest sets the batch that the policy forms from the sequences that became ready first.
func (b *batcher) oldest(l *instance, now int64) (wait time.Duration, ok bool) {
	closed := false // a request cannot join the first one's batch
	b.items = b.items[:0]
	for s := l.ready.head; s != nil && len(b.items) < window; s = s.next {
		if b.rules.Ordered && s != l.ready.head && !canShareBatch(l.ready.head, s) {
			closed = true
			break
		}
		closed = closed || s.key != l.ready.head.key
		b.items = append(b.items, scheduler.Item{Shape: s.key, Rows: 1, Enqueued: s.head().Enqueued})
	}
	d := b.policy.Decide(now, scheduler.View{
		Items: b.items, More: l.ready.n > len(b.items), Instances: 1, Flush: b.flush, Closed: closed,
	}, b.positions[:0])
	b.positions = d.Take[:0]
	if len(d.Take) == 0 {
		return max(d.Wait, 1), false
	}
	l.batch = l.batch[:0]
	s, i := l.ready.head, int32(0)
	for _, at := range d.Take {
		for ; i < at; i++ {
			s = s.next
		}
		if len(l.batch) == 0 || canShareBatch(l.batch[0].seq, s) {
			l.batch = append(l.batch, s.at)
		}
	}
	return 0, true
}

// takeAll moves the next requests of a batch's sequences to their slots.
func (b *batcher) takeAll(l *instance) {
	for _, sl := range l.batch {
		if sl == nil {
			continue
		}
		s := sl.seq
		l.ready.remove(s)
		s.state = running
		if sl.outer == nil {
			sl.outer = s.queue.Pop()
			sl.start = s.fresh || sl.outer.Meta.Sequence.Start
			s.fresh = false
		}
		b.queued--
	}
}

// finish takes back an executed batch, and its instance.
func (b *batcher) finish(l *instance, now int64) {
	b.takeBack(l, now)
	b.freeInstance(l)
}

// takeBack takes back an executed batch, but not its instance. Its requests are complete, except those to be executed once more.
func (b *batcher) takeBack(l *instance, now int64) {
	for i, sl := range l.batch {
		l.batch[i] = nil
		if sl == nil {
			continue
		}
		if sl.again {
			sl.start, sl.again = false, false
			b.queued++
		} else {
			sl.outer = nil
		}
		b.reclassify(sl.seq, now)
	}
}

// freeInstance lets an instance execute its next batch.
func (b *batcher) freeInstance(l *instance) {
	l.busy = false
	l.lease.Release(l.ready.n > 0)
	b.dismiss(l)
}

// canShareBatch reports whether the next requests of two sequences, and their states, have shapes that can share a
// batch. For a sequence that starts, the initial states count; they differ from other states only where an extent
// is variable.
func canShareBatch(a, b *sequence) bool {
	x, y := a.head(), b.head()
	same := func(p, q *tensor.Tensor) bool { return p.Present() == q.Present() && p.Shape.Equal(q.Shape) }
	for i := range x.In {
		if !same(&x.In[i], &y.In[i]) {
			return false
		}
	}
	for i := range a.at.states {
		if !same(a.at.next(i), b.at.next(i)) {
			return false
		}
	}
	return true
}

// next returns a state as the slot's next request will receive it.
func (sl *slot) next(i int) *tensor.Tensor {
	s := sl.seq
	if w := s.head(); len(sl.initial) > 0 && sl.outer != w && (s.fresh || w.Meta.Sequence.Start) {
		return &sl.initial[i]
	}
	return &sl.states[i]
}

// shapeKey hashes the shapes of a request (FNV-1a over words): equal for requests that can share a batch.
func shapeKey(w *scheduler.Task) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211
	key := uint64(offset)
	for i := range w.In {
		t := &w.In[i]
		if !t.Present() {
			key = (key ^ uint64(i) ^ 1<<63) * prime
			continue
		}
		for _, d := range t.Shape.Dims() {
			key = (key ^ uint64(d)) * prime
		}
		key = (key ^ 1<<62) * prime
	}
	return key
}

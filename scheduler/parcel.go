package scheduler

import "github.com/tutti-server/tutti/backends"

// parcel is a list of works on its way into a free instance, past the queue. It lies
// in the first of them, so that sending one allocates nothing.
type parcel struct {
	*Queue
	list TaskList
	inst backends.Instance
	// brief says that executing it takes less than having another goroutine do so. A decoupled model may wait for whoever
	// takes its answers, which may be kept behind it.
	brief bool
}

// wakeup is what it costs, in ns, to have a worker on another processor execute a batch:
// it is woken, and the goroutine that needs what comes of it may be woken again.
const wakeup = 5000

// Help executes the batch, for which the instance is already taken.
func (p *parcel) Help(t *RunLoop) bool {
	s, batch, inst := p.Queue, p.list, p.inst
	p.list, p.inst = TaskList{}, nil // the work may be gone when it has been executed
	s.execute(inst, batch, t)
	return true
}

// pass sends the works into a free instance and reports whether it did: when they are
// one work or a whole batch, nobody waits before them, every client is still there,
// no others are expected that a work could share a batch with, and the policy makes
// the very same batch of them. Otherwise they are for the queue,
// where they may be taken apart and join others.
//
// hot: one lock and no allocation.
func (s *Queue) pass(list *TaskList, t *RunLoop) bool {
	if list.n > 1 && (!list.whole || list.n > s.look || !s.runner.Uniform(list)) {
		return false
	}
	now := t.Now()
	for w := list.Head; w != nil; w = w.next {
		if w.Expired(now) != nil {
			return false
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.free) == 0 || s.queue.n > 0 || s.hold > list.n || list.n == 1 && s.expects() || s.queue.late(list.Head, now) || !s.takes(list, now) {
		return false
	}
	inst := s.admit()
	if inst == nil {
		return false
	}
	s.hold = 0
	if s.order != nil {
		s.order.join(list)
	}
	list.Head.Held = 0
	p := &list.Head.queued.parcel
	p.Queue, p.list, p.inst = s, *list, inst
	p.brief = !s.runner.sig.Decoupled && s.perWork > 0 && s.perWork*int64(list.n) < wakeup
	s.rows += list.rows()
	t.Ready(p)
	return true
}

// takes reports whether the policy would make one batch of all the works. Called with
// the lock held.
func (s *Queue) takes(list *TaskList, now int64) bool {
	s.items = s.items[:0]
	for w := list.Head; w != nil; w = w.next {
		s.items = append(s.items, item(w))
	}
	v := View{Items: s.items, Instances: int32(len(s.all)), Executing: s.rows, Queued: list.rows(), Flush: s.hurry}
	return len(s.policy.Decide(now, v, s.take[:0]).Take) == list.n
}

// item is what the policy sees of w.
func item(w *Task) Item {
	return Item{Shape: w.key, Length: w.length, Rows: w.Rows, Elements: w.elements, Enqueued: w.Enqueued}
}

// Uniform reports whether all works of list may share a batch.
func (r *Runner) Uniform(list *TaskList) bool {
	for w := list.Head.next; w != nil; w = w.next {
		if !r.compatible(list.Head, w) {
			return false
		}
	}
	return true
}

// RunWhole executes a whole batch as one, and reports whether it did: not when the
// model cannot take so many rows, or a work cannot share the batch or is not wanted
// any more.
//
// hot: no allocation.
func (r *Runner) RunWhole(inst backends.Instance, list *TaskList, t *RunLoop) bool {
	if !list.whole || int(list.rows()) > r.sig.MaxBatch || !r.Uniform(list) {
		return false
	}
	now := t.Now()
	for w := list.Head; w != nil; w = w.next {
		if w.Expired(now) != nil {
			return false
		}
	}
	r.Run(inst, list, t)
	return true
}

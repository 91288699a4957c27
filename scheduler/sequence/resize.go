package sequence

import (
	"slices"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/batch"
)

var _ scheduler.Resizable = (*Scheduler)(nil)

// Add adds instances. They take sequences of the backlog at once.
func (s *Scheduler) Add(instances []backends.Instance, limiters []scheduler.Limiter) {
	s.mu.Lock()
	s.join(instances, limiters)
	s.batcher.spread()
	ready := s.batcher.startable()
	s.schedule(telemetry.Now())
	s.mu.Unlock()
	if ready {
		s.workers.Go(s)
	}
}

// Remove removes an instance when the sequences in its slots have ended; their further requests still execute where
// their states are. If inst stands for several instances, the one with the fewest sequences is removed.
func (s *Scheduler) Remove(inst backends.Instance, gone func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var l *lane
	for _, x := range s.batcher.lanes {
		if batch.Same(x.inst, inst) && x.leaving == nil && (l == nil || x.taken() < l.taken()) {
			l = x
		}
	}
	s.batcher.remove(l, gone)
}

// join adds a lane for each instance. Called with the lock held, or before the scheduler is used.
func (s *Scheduler) join(instances []backends.Instance, limiters []scheduler.Limiter) {
	s.workers.Reserve(len(instances))
	for i, inst := range instances {
		l := s.batcher.add()
		l.inst = inst
		if i < len(limiters) && limiters[i] != nil {
			var e scheduler.Scheduler = admission{s, l} // made once, so that an admission allocates nothing
			l.lease = scheduler.NewLease(limiters[i], func() { s.workers.Go(e) })
		}
		if st := backends.StreamOf(inst); st != nil {
			l.at = st.Place()
		}
	}
}

// leave releases a lane without sequences and calls its owner's callback. Called with the lock held.
func (s *Scheduler) leave(l *lane) {
	for _, sl := range l.slots {
		sl.forget()
	}
	tensor.ReleaseAll(l.zeros)
	s.workers.Reserve(-1)
	s.runner.Forget(l.inst)
	l.leaving()
}

// add adds a lane.
func (b *batcher) add() *lane {
	l := &lane{number: b.counted}
	b.counted++
	b.lanes = append(b.lanes, l)
	b.room += b.rules.Slots
	return l
}

// spread moves sequences of the backlog to free slots.
func (b *batcher) spread() {
	for b.backlog.len() > 0 {
		sl := b.vacant()
		if sl == nil {
			return
		}
		b.inherit(sl)
	}
}

// remove removes a lane, now or when the sequences in its slots have ended.
func (b *batcher) remove(l *lane, gone func()) {
	l.leaving = gone
	b.room -= b.rules.Slots - len(l.slots)
	for _, sl := range l.slots {
		if sl.seq == nil {
			b.free.remove(sl)
		}
	}
	b.dismiss(l)
}

// dismiss removes a lane whose instance is leaving, once no sequence is left in it.
func (b *batcher) dismiss(l *lane) {
	if l.leaving == nil || l.busy || l.taken() > 0 {
		return
	}
	l.lease.Release(false)
	b.lanes = slices.DeleteFunc(slices.Clone(b.lanes), func(x *lane) bool { return x == l }) // a copy, because a caller may iterate over it
	b.removed(l)
}

// taken returns the number of slots with a sequence.
func (l *lane) taken() (n int) {
	for _, sl := range l.slots {
		n += number(sl.seq != nil)
	}
	return n
}

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

// Add puts more instances to work, which take sequences of the backlog at once.
func (s *Scheduler) Add(instances []backends.Instance, gates []scheduler.Limiter) {
	s.mu.Lock()
	s.join(instances, gates)
	s.book.spread()
	ready := s.book.startable()
	s.schedule(telemetry.Now())
	s.mu.Unlock()
	if ready {
		s.workers.Go(s)
	}
}

// Remove takes an instance out when the sequences in its slots have ended: their
// further requests run where their states are. Of one that stands for several, the one with the
// fewest sequences goes.
func (s *Scheduler) Remove(inst backends.Instance, gone func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var l *lane
	for _, x := range s.book.lanes {
		if batch.Same(x.inst, inst) && x.leaving == nil && (l == nil || x.taken() < l.taken()) {
			l = x
		}
	}
	s.book.remove(l, gone)
}

// join gives each instance a lane. Called with the lock held, or before the scheduler is used.
func (s *Scheduler) join(instances []backends.Instance, gates []scheduler.Limiter) {
	s.workers.Reserve(len(instances))
	for i, inst := range instances {
		l := s.book.add()
		l.inst = inst
		if i < len(gates) && gates[i] != nil {
			var e scheduler.Scheduler = entrance{s, l} // made once, so that being let in allocates nothing
			l.door = scheduler.NewLease(gates[i], func() { s.workers.Go(e) })
		}
		if st := backends.StreamOf(inst); st != nil {
			l.at = st.Place()
		}
	}
}

// leave gives up a lane without sequences and tells the owner of its instance. Called with
// the lock held.
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
func (b *book) add() *lane {
	l := &lane{number: b.counted}
	b.counted++
	b.lanes = append(b.lanes, l)
	b.room += b.rules.Slots
	return l
}

// spread gives sequences of the backlog the slots that there are.
func (b *book) spread() {
	for b.backlog.len() > 0 {
		sl := b.vacant()
		if sl == nil {
			return
		}
		b.inherit(sl)
	}
}

// remove takes a lane out, now or when the sequences in its slots have ended.
func (b *book) remove(l *lane, gone func()) {
	l.leaving = gone
	b.room -= b.rules.Slots - len(l.slots)
	for _, sl := range l.slots {
		if sl.seq == nil {
			b.free.remove(sl)
		}
	}
	b.dismiss(l)
}

// dismiss takes a lane out that was removed, once nothing is left in it.
func (b *book) dismiss(l *lane) {
	if l.leaving == nil || l.busy || l.taken() > 0 {
		return
	}
	l.door.Release(false)
	b.lanes = slices.DeleteFunc(slices.Clone(b.lanes), func(x *lane) bool { return x == l }) // others may be looking at it
	b.gone(l)
}

// taken returns how many slots have a sequence.
func (l *lane) taken() (n int) {
	for _, sl := range l.slots {
		n += number(sl.seq != nil)
	}
	return n
}

package scheduler

import (
	"slices"

	"github.com/tutti-server/tutti/backends"
)

// Resizable is a Scheduler whose instances may change while it serves.
type Resizable interface {
	Scheduler
	// Add puts more instances to work. They move to the scheduler, and pass the gates of
	// the same positions before a batch; nil gates, or a nil one, let them run as they come.
	Add(instances []backends.Instance, gates []Limiter)
	// Remove takes one instance out. It gets no more batches, and is the caller's again
	// once gone is called: when the batch that it executes is done, and in a model of
	// sequences when the last sequence in its slots has ended. Another instance must be
	// left. gone is called once; it must neither block nor call the scheduler.
	Remove(inst backends.Instance, gone func())
}

var _ Resizable = (*Queue)(nil)

// leaver is an instance that was removed while it was in use.
type leaver struct {
	id   uintptr
	uses int // batches that it executes, detached ones among them
	gone func()
}

// Add puts more instances to work, unless the station's is Shared.
func (s *Queue) Add(instances []backends.Instance, gates []Limiter) {
	s.workers.Reserve(len(instances))
	s.mu.Lock()
	s.all = slices.Concat(s.all, instances)
	s.free = append(s.free, s.behind(instances, gates)...)
	more := s.queue.n > 0
	s.mu.Unlock()
	if more {
		s.workers.Kick(s)
	}
}

// Remove takes an instance out, at once or when the batches that it executes are done.
func (s *Queue) Remove(inst backends.Instance, gone func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	is := func(x backends.Instance) bool { return Same(bare(x), inst) }
	i := slices.IndexFunc(s.all, is)
	s.all = slices.Concat(s.all[:i], s.all[i+1:])
	if i := slices.IndexFunc(s.gates, func(g *gated) bool { return is(g) }); i >= 0 {
		s.gates = slices.Delete(s.gates, i, i+1)
	}
	l := leaver{id: identity(inst), gone: gone}
	for _, x := range s.apart {
		if is(x) {
			l.uses++
		}
	}
	if i := slices.IndexFunc(s.free, is); i >= 0 {
		inst = s.grab(i)
	} else {
		l.uses++
		s.owed++
	}
	if l.uses == 0 {
		s.left(inst, gone)
		return
	}
	s.leavers = append(s.leavers, l)
}

// bare returns an instance without its gate.
func bare(inst backends.Instance) backends.Instance {
	if g, ok := inst.(*gated); ok {
		return g.Instance
	}
	return inst
}

// vacate frees the instance of a batch, unless it is owed: to the work that its place was
// lent by, or to whoever removed it. Called with the lock held.
//
// hot: one comparison more than the instance costs.
func (s *Queue) vacate(inst backends.Instance, more bool) {
	if s.owed > 0 && s.repay(inst) {
		return
	}
	leave(inst, more)
	s.free = append(s.free, inst)
}

// repay keeps an instance that is owed from becoming free, and reports whether it is.
// Called with the lock held.
func (s *Queue) repay(inst backends.Instance) bool {
	if s.shared { // one place is like another
		s.owed--
		return true
	}
	i := s.leaver(inst)
	if i < 0 {
		return false
	}
	leave(inst, false)
	s.owed--
	s.used(i, inst)
	return true
}

// part notes that a batch goes on without the instance that it holds. Called with the
// lock held.
func (s *Queue) part(inst backends.Instance) {
	s.apart = append(s.apart, inst)
	if i := s.leaver(inst); i >= 0 {
		s.leavers[i].uses++
	}
}

// rejoined ends what part began. Called with the lock held.
func (s *Queue) rejoined(inst backends.Instance) {
	i := slices.IndexFunc(s.apart, func(x backends.Instance) bool { return Same(x, inst) })
	s.apart = slices.Delete(s.apart, i, i+1)
	if i := s.leaver(inst); i >= 0 {
		s.used(i, inst)
	}
}

// leaver returns which of the leavers an instance is, or -1. Called with the lock held.
func (s *Queue) leaver(inst backends.Instance) int {
	id := identity(bare(inst))
	return slices.IndexFunc(s.leavers, func(l leaver) bool { return l.id == id })
}

// used ends one use of a leaver, which is gone after the last. Called with the lock held.
func (s *Queue) used(i int, inst backends.Instance) {
	l := &s.leavers[i]
	if l.uses--; l.uses > 0 {
		return
	}
	gone := l.gone
	s.leavers = slices.Delete(s.leavers, i, i+1)
	s.left(inst, gone)
}

// left gives up the worker of an instance that is out, and tells its owner.
func (s *Queue) left(inst backends.Instance, gone func()) {
	s.workers.Reserve(-1)
	s.runner.Forget(inst)
	gone()
}

package queue

import (
	"slices"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/batch"
)

// instances are those of a Queue; its lock guards them.
type instances struct {
	all      []backends.Instance
	free     []backends.Instance
	limited  []*limited          // those of all that have a limiter
	detached []backends.Instance // those of detached batches
	leaving  []leaving           // removed instances that are still in use
	owed     int                 // instances that do not become free when their batch ends
	rows     int32               // executing now
	spare    *execution          // free executions, linked by next
}

// limited is an instance with a limiter.
type limited struct {
	backends.Instance
	scheduler.Lease // guarded by the queue's lock
}

// Unwrap returns the instance itself.
func (g *limited) Unwrap() backends.Instance { return g.Instance }

// bare returns an instance without its limiter.
func bare(inst backends.Instance) backends.Instance {
	if g, ok := inst.(*limited); ok {
		return g.Instance
	}
	return inst
}

// limit wraps the instances with the limiters at the same positions.
func (q *Queue) limit(list []backends.Instance, limiters []scheduler.Limiter) []backends.Instance {
	list = slices.Clone(list)
	for i, l := range limiters {
		if l == nil {
			continue
		}
		g := &limited{Instance: list[i]}
		var a scheduler.Scheduler = admission{q, g} // made once, so that resuming allocates nothing
		g.Lease = scheduler.NewLease(l, func() { q.workers.Go(a) })
		list[i] = g
		q.limited = append(q.limited, g)
	}
	return list
}

// admission is what a worker helps when a limiter resumes an instance.
type admission struct {
	*Queue
	g *limited
}

// Help executes a batch with the instance, or releases its limiter when there is none.
func (a admission) Help(t *scheduler.RunLoop) bool {
	a.mu.Lock()
	a.g.Admitted()
	a.mu.Unlock()
	return a.Queue.Help(t)
}

// admit takes a free instance that may execute now, or returns nil; called with the lock held and at least one instance
// free. An admitted one goes first; the others ask their limiters until one admits, and are resumed later.
//
// hot: without limiters it takes the last free instance.
func (q *Queue) admit() backends.Instance {
	last := len(q.free) - 1
	if len(q.limited) == 0 {
		return q.grab(last)
	}
	for i := last; i >= 0; i-- {
		if g, ok := q.free[i].(*limited); ok && g.Held() {
			return q.grab(i)
		}
	}
	q.rank()
	for i := last; i >= 0; i-- {
		if g, ok := q.free[i].(*limited); !ok || g.Acquire() {
			return q.grab(i)
		}
	}
	return nil
}

// rank moves the instance of the lowest rank to the end of the free ones; called with the lock held.
func (q *Queue) rank() {
	best, least := -1, int64(0)
	for i := range q.free {
		if g, ok := q.free[i].(*limited); ok {
			if r, ranked := g.Rank(); ranked && (best < 0 || r < least) {
				best, least = i, r
			}
		}
	}
	if last := len(q.free) - 1; best >= 0 {
		q.free[best], q.free[last] = q.free[last], q.free[best]
	}
}

// grab takes the i-th free instance; called with the lock held.
func (q *Queue) grab(i int) backends.Instance {
	inst, last := q.free[i], len(q.free)-1
	q.free[i] = q.free[last]
	q.free = q.free[:last]
	return inst
}

// releaseIdle releases the limiters of instances that were admitted while there is nothing to
// execute; called with the lock held.
func (q *Queue) releaseIdle() {
	if len(q.limited) == 0 {
		return
	}
	for _, inst := range q.free {
		release(inst, false)
	}
}

// release ends an execution at the instance's limiter; more reports that tasks wait. Called with the lock held.
func release(inst backends.Instance, more bool) {
	if g, ok := inst.(*limited); ok {
		g.Release(more)
	}
}

// vacate frees the instance of a batch, unless it is owed: to the task that its place was lent by,
// or to the caller of Remove. Called with the lock held.
//
// hot: one comparison where nothing is owed.
func (q *Queue) vacate(inst backends.Instance, more bool) {
	if q.owed > 0 && q.repay(inst) {
		return
	}
	release(inst, more)
	q.free = append(q.free, inst)
}

// repay keeps an owed instance from becoming free, and reports whether it is owed. Called with the lock held.
func (q *Queue) repay(inst backends.Instance) bool {
	if q.shared { // all places are alike
		q.owed--
		return true
	}
	i := q.leaver(inst)
	if i < 0 {
		return false
	}
	release(inst, false)
	q.owed--
	q.used(i, inst)
	return true
}

// leaving is an instance that was removed while it was in use.
type leaving struct {
	inst backends.Instance
	uses int // batches that it executes, detached ones included
	gone func()
}

// Add implements scheduler.Resizable.
func (q *Queue) Add(list []backends.Instance, limiters []scheduler.Limiter) {
	q.workers.Reserve(len(list))
	q.mu.Lock()
	q.all = slices.Concat(q.all, list)
	q.free = append(q.free, q.limit(list, limiters)...)
	more := q.backlog.n > 0
	q.mu.Unlock()
	if more {
		q.workers.Go(q)
	}
}

// Remove implements scheduler.Resizable.
func (q *Queue) Remove(inst backends.Instance, gone func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	is := func(x backends.Instance) bool { return batch.Same(bare(x), inst) }
	i := slices.IndexFunc(q.all, is)
	q.all = slices.Concat(q.all[:i], q.all[i+1:])
	q.limited = slices.DeleteFunc(q.limited, func(g *limited) bool { return is(g) })
	l := leaving{inst: inst, gone: gone}
	for _, x := range q.detached {
		if is(x) {
			l.uses++
		}
	}
	if i := slices.IndexFunc(q.free, is); i >= 0 {
		inst = q.grab(i)
	} else {
		l.uses++
		q.owed++
	}
	if l.uses == 0 {
		q.left(inst, gone)
		return
	}
	q.leaving = append(q.leaving, l)
}

// detach notes that a batch goes on without its instance. Called with the lock held.
func (q *Queue) detach(inst backends.Instance) {
	q.detached = append(q.detached, inst)
	if i := q.leaver(inst); i >= 0 {
		q.leaving[i].uses++
	}
}

// reattached ends detach. Called with the lock held.
func (q *Queue) reattached(inst backends.Instance) {
	i := slices.IndexFunc(q.detached, func(x backends.Instance) bool { return batch.Same(x, inst) })
	q.detached = slices.Delete(q.detached, i, i+1)
	if i := q.leaver(inst); i >= 0 {
		q.used(i, inst)
	}
}

// leaver returns the position of an instance in leaving, or -1. Called with the lock held.
func (q *Queue) leaver(inst backends.Instance) int {
	return slices.IndexFunc(q.leaving, func(l leaving) bool { return batch.Same(l.inst, bare(inst)) })
}

// used ends one use of a leaving instance, which is gone after the last. Called with the lock held.
func (q *Queue) used(i int, inst backends.Instance) {
	l := &q.leaving[i]
	if l.uses--; l.uses > 0 {
		return
	}
	gone := l.gone
	q.leaving = slices.Delete(q.leaving, i, i+1)
	q.left(inst, gone)
}

// left gives up the worker of an instance that is out, and calls gone.
func (q *Queue) left(inst backends.Instance, gone func()) {
	q.workers.Reserve(-1)
	q.runner.Forget(inst)
	gone()
}

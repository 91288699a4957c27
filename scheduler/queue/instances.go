package queue

import (
	"slices"
	"sync"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/batch"
	"github.com/tutti-server/tutti/scheduler/deadline"
)

// instances are those of a Queue; its lock guards them.
type instances struct {
	all      []backends.Instance
	free     []backends.Instance
	limited  []*limited          // those of all that have a limiter
	detached []backends.Instance // those of detached batches
	removed  []removedInstance   // removed instances that are still in use
	reserved int                 // instances that do not become free when their batch ends
	rows     int32               // executing now
	device   deadline.Device     // that the queue shares with those of other models; nil for none
	spare    *execution          // free executions, linked by next
}

// limited is an instance with a limiter.
type limited struct {
	backends.Instance
	Lease // guarded by the queue's lock
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
		g.Open(l, q, &q.mu, q.workers)
		if b, ok := l.(scheduler.Bidder); ok {
			if d := b.Bids(&q.bid); d != nil {
				q.device = d
			}
		}
		list[i] = g
		q.limited = append(q.limited, g)
	}
	return list
}

// admit takes a free instance that may execute now, or returns nil; called with the lock held and at least one instance
// free. An admitted one goes first; the others ask their limiters until one admits, and are resumed later.
//
// hot: without limiters it takes the last free instance.
func (q *Queue) admit() backends.Instance {
	last := len(q.free) - 1
	if len(q.limited) == 0 {
		return q.takeFreeAt(last)
	}
	for i := last; i >= 0; i-- {
		if g, ok := q.free[i].(*limited); ok && g.Held() {
			return q.takeFreeAt(i)
		}
	}
	best, least := -1, int64(0) // the instance of the lowest rank is asked first
	for i := range q.free {
		if g, ok := q.free[i].(*limited); ok {
			if r, ranked := g.Rank(); ranked && (best < 0 || r < least) {
				best, least = i, r
			}
		}
	}
	if best >= 0 {
		q.free[best], q.free[last] = q.free[last], q.free[best]
	}
	for i := last; i >= 0; i-- {
		if g, ok := q.free[i].(*limited); !ok || g.Acquire() {
			return q.takeFreeAt(i)
		}
	}
	return nil
}

// takeFreeAt takes the i-th free instance; called with the lock held.
func (q *Queue) takeFreeAt(i int) backends.Instance {
	inst, last := q.free[i], len(q.free)-1
	q.free[i] = q.free[last]
	q.free = q.free[:last]
	return inst
}

// releaseIdle releases the limiters of admitted instances while there is nothing to execute; the lock is held.
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

// freeInstance puts the instance of a batch on the free list, unless it is reserved: for a paused task that resumed while
// none was free, or for the caller of Remove. Called with the lock held.
//
// hot: one comparison where nothing is reserved.
func (q *Queue) freeInstance(inst backends.Instance, more bool) {
	if q.reserved > 0 && q.claimReserved(inst) {
		return
	}
	release(inst, more)
	q.free = append(q.free, inst)
}

// claimReserved keeps a reserved instance from becoming free, and reports whether it is reserved. Called with the lock held.
func (q *Queue) claimReserved(inst backends.Instance) bool {
	if q.shared { // all instances are alike
		q.reserved--
		return true
	}
	i := q.removedIndex(inst)
	if i < 0 {
		return false
	}
	release(inst, false)
	q.reserved--
	q.endUse(i, inst)
	return true
}

// removedInstance is an instance that was removed while it was in use.
type removedInstance struct {
	inst      backends.Instance
	uses      int // batches that it executes, detached ones included
	onRemoved func()
}

// Add implements scheduler.Resizable.
func (q *Queue) Add(list []backends.Instance, limiters []scheduler.Limiter) {
	q.workers.Reserve(len(list))
	q.mu.Lock()
	q.all, q.lost = slices.Concat(q.all, list), nil
	q.free = append(q.free, q.limit(list, limiters)...)
	more := q.backlog.n > 0 || q.waiting.n > 0
	q.mu.Unlock()
	if more {
		q.workers.Go(q)
	}
}

// Remove implements scheduler.Resizable.
func (q *Queue) Remove(inst backends.Instance, gone func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.remove(inst, gone)
}

// Lose implements scheduler.Losing.
func (q *Queue) Lose(at tensor.Place, why error, gone func(inst backends.Instance)) {
	q.mu.Lock()
	for _, inst := range slices.Clone(q.all) {
		if batch.PlaceOf(inst) == at {
			q.remove(inst, func() { gone(inst) })
		}
	}
	none := len(q.all) == 0
	if none {
		q.lost = why
	}
	q.mu.Unlock()
	if none {
		q.workers.Go(q) // which fails the queued tasks
	}
}

// remove is Remove with the lock held.
func (q *Queue) remove(inst backends.Instance, gone func()) {
	is := func(x backends.Instance) bool { return batch.Same(bare(x), inst) }
	i := slices.IndexFunc(q.all, is)
	q.all = slices.Concat(q.all[:i], q.all[i+1:])
	q.limited = slices.DeleteFunc(q.limited, func(g *limited) bool { return is(g) })
	l := removedInstance{inst: inst, onRemoved: gone, uses: 1}
	for _, x := range q.detached {
		if is(x) {
			l.uses++
		}
	}
	if i := slices.IndexFunc(q.free, is); i >= 0 {
		q.removed = append(q.removed, l)
		q.endUse(len(q.removed)-1, q.takeFreeAt(i))
		return
	}
	q.reserved++
	q.removed = append(q.removed, l)
}

// removedIndex returns the position of an instance in removed, or -1. Called with the lock held.
func (q *Queue) removedIndex(inst backends.Instance) int {
	return slices.IndexFunc(q.removed, func(l removedInstance) bool { return batch.Same(l.inst, bare(inst)) })
}

// endUse ends one use of a removed instance. After the last one it calls onRemoved. Called with the lock held.
func (q *Queue) endUse(i int, inst backends.Instance) {
	if q.removed[i].uses--; q.removed[i].uses > 0 {
		return
	}
	gone := q.removed[i].onRemoved
	q.removed = slices.Delete(q.removed, i, i+1)
	q.workers.Reserve(-1)
	q.runner.Forget(inst)
	gone()
}

// Lease is the state of an instance at its limiter. A zero Lease always admits. The owner's lock guards it.
type Lease struct {
	limiter scheduler.Limiter
	ranked  scheduler.Ranked // limiter, when it is one
	resume  func()
	state   leaseState
}

type leaseState uint8

const (
	released leaseState = iota
	waiting             // asked, and not admitted yet
	held
)

// Open connects the lease of an instance of s with its limiter. When the limiter admits an instance that it had
// refused, a worker helps s. mu guards the lease, which must not move any more.
func (l *Lease) Open(limiter scheduler.Limiter, s scheduler.Scheduler, mu *sync.Mutex, workers *scheduler.Workers) {
	l.limiter = limiter
	l.ranked, _ = limiter.(scheduler.Ranked)
	var a scheduler.Scheduler = admission{s, mu, l} // made once, so that resuming allocates nothing
	l.resume = func() { workers.Go(a) }
}

// admission is what a worker helps when a limiter resumes an instance.
type admission struct {
	scheduler.Scheduler
	mu    *sync.Mutex
	lease *Lease
}

// Help executes a batch with the instance, or releases its limiter when there is none.
func (a admission) Help(t *scheduler.RunLoop) bool {
	a.mu.Lock()
	a.lease.state = held
	a.mu.Unlock()
	return a.Scheduler.Help(t)
}

// Acquire reports whether the instance may execute; if not, it asks once.
//
// hot: no allocation.
func (l *Lease) Acquire() bool {
	if l.limiter == nil {
		return true
	}
	if l.state == released {
		l.state = waiting
		if l.limiter.Acquire(l.resume) {
			l.state = held
		}
	}
	return l.state == held
}

// Took implements telemetry.Told: it tells a limiter that shares by time how long the device took for a batch.
func (l *Lease) Took(ns int64) {
	if t, ok := l.limiter.(telemetry.Told); ok {
		t.Took(ns)
	}
}

// Waiting reports whether the instance has asked and is not admitted yet.
func (l *Lease) Waiting() bool { return l.state == waiting }

// Held reports whether the limiter has admitted the instance.
func (l *Lease) Held() bool { return l.state == held }

// Rank returns the rank of an instance that would have to ask its limiter; ok is false for any other.
func (l *Lease) Rank() (rank int64, ok bool) {
	if l.ranked == nil || l.state != released {
		return 0, false
	}
	return l.ranked.Rank(), true
}

// Release ends a held lease's execution; more reports that the instance has more to execute.
func (l *Lease) Release(more bool) {
	switch {
	case l.state != held:
	case more && l.ranked != nil:
		l.state = waiting
		if l.ranked.Reacquire() {
			l.state = held
		}
	default:
		l.state = released
		l.limiter.Release()
	}
}

package scheduler

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// Station is a queue in front of a model's instances. Instances pull: a batch is
// formed when one is free, so batches grow while all are busy. It implements
// Scheduler; a Policy decides what a batch is, and the Levels what may wait and how
// long.
type Queue struct {
	runner  *Runner
	policy  Policy
	learner Learner // the policy, when it learns
	workers *Workers
	look    int    // works that the policy sees
	order   *order // nil when answers leave as they come
	shared  bool   // all are one instance that any number of goroutines use

	mu      sync.Mutex
	all     []backends.Instance // guarded by mu
	gates   []*gated            // those of all that are behind a gate, guarded by mu
	queue   queue               // guarded by mu
	free    []backends.Instance // guarded by mu
	items   []Item              // scratch of the decision, guarded by mu
	seen    []*Task             // the works of items, guarded by mu
	take    []int32             // scratch of the decision, guarded by mu
	hurry   bool                // no batch waits for more works, guarded by mu
	held    int64               // when the policy first held back what waits, guarded by mu
	hold    int                 // works to wait for before the first batch, guarded by mu
	perWork int64               // ns that a work takes of an instance, guarded by mu
	rows    int32               // executing now, guarded by mu
	owed    int                 // instances that do not become free when their batch ends, guarded by mu
	apart   []backends.Instance // those of detached batches, guarded by mu
	leavers []leaver            // removed instances that are still in use, guarded by mu
	alarms  alarms              // guarded by mu
	crowd   crowd               // guarded by mu

	pending Pending // works queued or executing
}

var _ Scheduler = (*Queue)(nil)

// StationSettings are what a Station is made with.
type QueueSettings struct {
	Runner *Runner
	Policy Policy
	// Instances move to the station, which closes them. One that occurs several
	// times counts as several: a concurrent model's.
	Instances []backends.Instance
	// Gates are what the instances of the same positions pass before a batch; nil, or
	// a nil one, lets them run as they come.
	Limiters []Limiter
	// Shared says that any number of goroutines may use an instance, a concurrent model's.
	Shared  bool
	Workers *Workers
	// Levels are the queue's priority levels and limits; none by default.
	Levels Levels
	// Ordered has answers leave in the order of arrival.
	Ordered bool
	// Look bounds how many works of one shape a policy sees, so that a decision costs
	// the same however long the queue is; 0 for 128.
	Look int
	// Hold keeps the first batch from forming until so many works wait: a test hook.
	Hold int

	_ struct{}
}

// usualLook is the default of StationSettings.Look.
const usualLook = 128

// NewStation returns a station with every instance free.
func NewQueue(s QueueSettings) *Queue {
	look := s.Look
	if look <= 0 {
		look = usualLook
	}
	st := &Queue{
		runner:  s.Runner,
		policy:  s.Policy,
		workers: s.Workers,
		all:     s.Instances,
		shared:  s.Shared,
		look:    look,
		hold:    s.Hold,
		queue:   newQueue(s.Levels, s.Runner.sig.Model),
		take:    make([]int32, 0, min(look, usualLook)),
	}
	if s.Ordered {
		st.order = &order{done: st.hand}
	}
	st.free = st.behind(s.Instances, s.Limiters)
	st.learner, _ = s.Policy.(Learner)
	s.Workers.Reserve(len(s.Instances) + 1) // and one that waits for a delay to pass
	return st
}

// Enqueue moves the works to the queue, or past it to an instance that is free; those
// that find their level full end, once the turn goes on.
//
// hot: one lock per list.
func (s *Queue) Enqueue(list TaskList, t *RunLoop) {
	now := t.Now()
	for w := list.Head; w != nil; w = w.next {
		w.Enqueued = now
		w.key, w.length, w.elements = s.runner.shapeKey(w)
	}
	s.pending.Add(list.n)
	if s.pass(&list, t) {
		return
	}
	var kept, refused TaskList // kept is read under the lock only: works change hands
	s.mu.Lock()
	for w := list.Pop(); w != nil; w = list.Pop() {
		if s.queue.push(w, now) {
			kept.Push(w)
			continue
		}
		w.Err = s.queue.errFull(w, s.perWork/int64(len(s.all)))
		refused.Push(w)
	}
	if s.order != nil {
		s.order.join(&kept)
	}
	s.runner.stats.Queued(int64(kept.n))
	ready := len(s.free) > 0 && (!s.crowd.looking || s.fills())
	if !ready {
		s.sweepLater(now)
	}
	s.mu.Unlock()
	if refused.n > 0 {
		t.Inline(refusal{s}, refused)
	}
	if ready {
		t.Ready(s)
	}
}

// refusal is what ends works that the queue has no room for.
type refusal struct{ *Queue }

// RunInline ends the works, which were never queued.
func (r refusal) RunInline(list TaskList, t *RunLoop) {
	for w := list.Head; w != nil; w = w.next {
		w.why = telemetry.QueueFull
	}
	r.runner.giveUp(&list, t.Now())
	r.pending.Add(-list.n)
	Complete(list, t)
}

// Help executes one batch, if an instance is free and the policy forms one.
//
// hot: two short locks and no allocation.
func (s *Queue) Help(t *RunLoop) bool {
	inst, batch, dropped, more := s.next(t)
	if more {
		s.workers.Kick(s)
	}
	if dropped.n > 0 {
		s.drop(dropped, t)
	}
	if inst == nil {
		return dropped.n > 0
	}
	s.runner.stats.Queued(-int64(batch.n))
	s.execute(inst, batch, t)
	return true
}

// execute runs a batch and hands it back.
func (s *Queue) execute(inst backends.Instance, batch TaskList, t *RunLoop) {
	s.attend(inst, &batch)
	whole := s.runner.Run(inst, &batch, t)
	if s.release(inst, &batch, whole) {
		t.Ready(s)
	}
	s.complete(batch, t)
}

// next takes a free instance and a batch for it. inst is nil when there is no
// instance or no batch yet. Works that must not be executed any more are dropped on
// the way. more tells that another instance is free while works are left.
func (s *Queue) next(t *RunLoop) (inst backends.Instance, batch, dropped TaskList, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lets() {
		s.let(t)
	}
	now := t.Now()
	switch {
	case len(s.free) == 0:
		return nil, batch, dropped, false
	case s.queue.n == 0:
		s.giveBack()
		return nil, batch, dropped, false
	case s.hold > s.queue.n:
		s.giveBack()
		s.sweepLater(now)
		return nil, batch, dropped, false
	}
	s.hold = 0
	take, wait := s.form(now, &dropped)
	if s.queue.n > 0 {
		s.sweepLater(now)
	}
	if len(take) == 0 {
		s.giveBack()
		if s.queue.n > 0 {
			if s.held == 0 {
				s.held = now
			}
			s.arm(now, wait)
		}
		return nil, batch, dropped, false
	}
	if inst = s.admit(); inst == nil {
		return nil, batch, dropped, false // it is let in later
	}
	batch = s.pull(take)
	batch.Head.Held, s.held = s.held, 0
	s.rows += batch.rows()
	return inst, batch, dropped, len(s.free) > 0 && s.queue.n > 0
}

// form asks the policy for a batch of the shape whose turn it is. It never waits for
// more works while others are queued that cannot join: those close the batch. It returns
// the batch's positions in the view, for pull. Called with the lock held.
func (s *Queue) form(now int64, dropped *TaskList) (take []int32, wait time.Duration) {
	for len(s.queue.heap) > 0 {
		g := s.queue.heap[0]
		v := s.view(g, now, dropped)
		if len(v.Items) == 0 || len(s.queue.heap) == 0 || s.queue.heap[0] != g {
			continue // its first works have gone, or went behind others
		}
		d := s.policy.Decide(now, v, s.take[:0])
		return d.Take, d.Wait
	}
	return nil, longest
}

// view shows the first works of a group, of which it drops those that are over.
func (s *Queue) view(g *group, now int64, dropped *TaskList) View {
	clear(s.seen)
	s.items, s.seen = s.items[:0], s.seen[:0]
	w := g.after(nil)
	for w != nil && len(s.items) < s.look {
		after := g.after(w)
		if s.queue.keeps(w, now, dropped) {
			s.items = append(s.items, item(w))
			s.seen = append(s.seen, w)
		}
		w = after
	}
	return View{
		Items: s.items, More: w != nil, Instances: int32(len(s.all)), Executing: s.rows, Queued: s.queue.rows,
		Flush: s.hurry, Closed: len(s.queue.heap) > 1,
	}
}

// pull takes the works at the given ascending positions of the view, apart from those
// that cannot share a batch with the first of them.
func (s *Queue) pull(positions []int32) (batch TaskList) {
	first := s.seen[positions[0]]
	for _, i := range positions {
		if w := s.seen[i]; w == first || s.runner.compatible(first, w) {
			s.queue.remove(w)
			batch.Push(w)
		}
	}
	return batch
}

// release frees the instance of a batch, learns what it cost and reports whether works
// wait for it.
func (s *Queue) release(inst backends.Instance, batch *TaskList, whole bool) bool {
	var x Executed
	known := whole && x.sum(batch)
	if x.Unpadded > 0 {
		s.runner.stats.Padded(x.Unpadded, x.Padding)
	}
	if s.order == nil {
		s.pending.Add(-batch.n)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	more := s.queue.n > 0
	s.crowd.saw(batch.n)
	if !s.rejoin(batch) {
		s.rows -= batch.rows()
		s.vacate(inst, more)
	}
	if known {
		s.perWork = max(s.perWork+(int64(x.Duration)/int64(batch.n)-s.perWork)/8, 1) // 0: not known
		if s.learner != nil {
			s.learner.Observe(x)
		}
	}
	return more && len(s.free) > 0
}

// sum notes what a batch cost that was executed as a whole, and reports whether that is
// known: what failed may have ended early. It writes where the result is read, for
// copying what was just written stalls the processor.
func (x *Executed) sum(batch *TaskList) (known bool) {
	if batch.Head == nil {
		return false
	}
	extent := int64(0)
	for w := batch.Head; w != nil; w = w.next {
		if w.Err != nil {
			return false
		}
		x.Rows += int64(w.Rows)
		x.Elements += w.elements
		extent = max(extent, int64(w.length))
		x.Unpadded += int64(w.Rows) * int64(w.length)
	}
	x.Padding = x.Rows*extent - x.Unpadded
	x.Duration = time.Duration(batch.Head.Times.InferEnd - batch.Head.Times.InputEnd)
	return true
}

// drop ends works that are not executed, each with its error.
func (s *Queue) drop(list TaskList, t *RunLoop) {
	s.runner.stats.Queued(-int64(list.n))
	s.runner.giveUp(&list, t.Now())
	if s.order == nil {
		s.pending.Add(-list.n)
	}
	s.complete(list, t)
}

// complete hands works back, in order of arrival where that is asked for.
func (s *Queue) complete(list TaskList, t *RunLoop) {
	switch {
	case s.order == nil:
		Complete(list, t)
	case s.order.end(list, t):
		s.workers.Reserve(1)
		s.workers.Kick(early{s})
	}
}

// hand hands works back whose turn it is to leave.
func (s *Queue) hand(list TaskList, t *RunLoop) {
	s.pending.Add(-list.n)
	Complete(list, t)
}

// Load returns how many works are queued or executing.
func (s *Queue) Load() int64 { return s.pending.n.Load() }

// InFlight returns how many works are queued or executing.
func (s *Queue) InFlight() int64 { return s.pending.Now() }

// Drain waits until nothing is queued or executing.
func (s *Queue) Drain(ctx context.Context) error { return s.pending.Wait(ctx) }

// Close closes the instances.
func (s *Queue) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.alarms.closed {
		return nil
	}
	s.alarms.close()
	s.workers.Reserve(-len(s.all) - 1)
	var errs []error
	for _, inst := range s.all {
		errs = append(errs, inst.Close())
	}
	return errors.Join(errs...)
}

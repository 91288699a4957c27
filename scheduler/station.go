package scheduler

import (
	"context"
	"errors"
	"sync"
	"time"

	"tutti/backends"
)

// window bounds how many of the oldest works a policy sees, so that a decision costs
// the same however long the queue is.
const window = 128

// Station is a queue in front of a model's instances. Instances pull: a batch is
// formed when one is free, so batches grow while all are busy. It implements
// Scheduler; a Policy decides what a batch is.
type Station struct {
	runner  *Runner
	policy  Policy
	learner Learner // the policy, when it learns
	workers *Workers
	all     []backends.Instance
	gates   []*gated // those of all that are behind a gate

	mu     sync.Mutex
	queue  queue               // guarded by mu
	free   []backends.Instance // guarded by mu
	items  []Item              // scratch of the decision, guarded by mu
	take   []int32             // scratch of the decision, guarded by mu
	timer  *time.Timer         // guarded by mu
	broom  *time.Timer         // guarded by mu
	armed  bool                // the timer is running, guarded by mu
	swept  bool                // the broom is running, guarded by mu
	rows   int32               // executing now, guarded by mu
	closed bool                // guarded by mu

	pending Pending // works queued or executing
}

var _ Scheduler = (*Station)(nil)

// StationSettings are what a Station is made with.
type StationSettings struct {
	Runner *Runner
	Policy Policy
	// Instances move to the station, which closes them. One that occurs several
	// times counts as several: a concurrent model's.
	Instances []backends.Instance
	// Gates are what the instances of the same positions pass before a batch; nil, or
	// a nil one, lets them run as they come.
	Gates   []Gate
	Workers *Workers

	_ struct{}
}

// NewStation returns a station with every instance free.
func NewStation(s StationSettings) *Station {
	st := &Station{
		runner:  s.Runner,
		policy:  s.Policy,
		workers: s.Workers,
		all:     s.Instances,
		take:    make([]int32, 0, window),
	}
	st.free = st.behind(s.Instances, s.Gates)
	st.learner, _ = s.Policy.(Learner)
	s.Workers.Reserve(len(s.Instances) + 1) // and one that waits for a delay to pass
	return st
}

// Enqueue moves the works to the queue.
//
// hot: one lock per list.
func (s *Station) Enqueue(list List, t *Turn) {
	now := t.Now()
	for w := list.Head; w != nil; w = w.next {
		w.Enqueued = now
		w.key, w.length = s.runner.shapeKey(w)
	}
	n := list.n
	s.runner.stats.Queued(int64(n))
	s.pending.Add(n)
	s.mu.Lock()
	for w := list.Pop(); w != nil; w = list.Pop() {
		s.queue.push(w)
	}
	ready := len(s.free) > 0
	if !ready {
		s.sweepLater()
	}
	s.mu.Unlock()
	if ready {
		t.Ready(s)
	}
}

// Help executes one batch, if an instance is free and the policy forms one.
//
// hot: two short locks and no allocation.
func (s *Station) Help(t *Turn) bool {
	inst, batch, dropped, more := s.next(t.Now())
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
	whole := s.runner.Run(inst, &batch, t)
	if s.release(inst, &batch) {
		t.Ready(s)
	}
	if whole {
		s.observe(&batch)
	}
	Complete(batch, t)
	return true
}

// next takes a free instance and a batch for it. inst is nil when there is no
// instance or no batch yet. Works whose clients have gone are dropped on the way.
// more tells that another instance is free while works are left.
func (s *Station) next(now int64) (inst backends.Instance, batch, dropped List, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.free) == 0 {
		return nil, batch, dropped, false
	}
	dropped = s.queue.sweep(window)
	if s.queue.len() == 0 {
		s.giveBack()
		return nil, batch, dropped, false
	}
	d := s.policy.Decide(now, s.view(), s.take[:0])
	if len(d.Take) == 0 {
		s.giveBack()
		s.arm(d.Wait)
		s.sweepLater()
		return nil, batch, dropped, false
	}
	if inst = s.admit(); inst == nil {
		s.sweepLater()
		return nil, batch, dropped, false
	}
	batch = s.queue.take(d.Take, s.runner.compatible)
	s.rows += batch.rows()
	return inst, batch, dropped, len(s.free) > 0 && s.queue.len() > 0
}

func (s *Station) view() View {
	n := min(s.queue.len(), window)
	s.items = s.items[:0]
	for i := range n {
		w := s.queue.at(i)
		s.items = append(s.items, Item{Shape: w.key, Length: w.length, Rows: w.Rows, Enqueued: w.Enqueued})
	}
	return View{Items: s.items, More: s.queue.len() > n, Instances: int32(len(s.all)), Executing: s.rows}
}

// short is the longest wait for which a worker is kept; beyond it a runtime timer's
// lateness matters little.
const short = 2 * time.Millisecond

// arm has a worker look again after d; called with the lock held. A short wait is a
// worker's, for which asking again is what it does when it wakes.
func (s *Station) arm(d time.Duration) {
	if s.armed || s.closed {
		return
	}
	s.armed = true
	switch {
	case d <= short:
		s.workers.KickAfter(alarm{s}, d)
	case s.timer == nil:
		s.timer = time.AfterFunc(d, func() { s.workers.Kick(alarm{s}) })
	default:
		s.timer.Reset(d)
	}
}

// alarm is what a station has the workers help after a wait.
type alarm struct{ *Station }

// Help lets the station be armed again, and helps it.
func (a alarm) Help(t *Turn) bool {
	a.mu.Lock()
	a.armed = false
	a.mu.Unlock()
	return a.Station.Help(t)
}

// sweepEvery is how long the works of clients that have gone may stay queued while
// nothing else looks at the queue.
const sweepEvery = 100 * time.Millisecond

// sweepLater has a worker look for such works; called with the lock held.
func (s *Station) sweepLater() {
	switch {
	case s.swept || s.closed:
		return
	case s.broom == nil:
		s.broom = time.AfterFunc(sweepEvery, func() { s.workers.Kick(sweep{s}) })
	default:
		s.broom.Reset(sweepEvery)
	}
	s.swept = true
}

// sweep is what a station has the workers help while works wait in its queue.
type sweep struct{ *Station }

// Help drops the works whose clients have gone.
func (s sweep) Help(t *Turn) bool {
	s.mu.Lock()
	s.swept = false
	dropped := s.queue.sweep(s.queue.len())
	if s.queue.len() > 0 {
		s.sweepLater()
	}
	s.mu.Unlock()
	if dropped.n > 0 {
		s.drop(dropped, t)
	}
	return dropped.n > 0
}

// release frees the instance of a batch and reports whether works wait for it.
func (s *Station) release(inst backends.Instance, batch *List) bool {
	s.pending.Add(-batch.n)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rows -= batch.rows()
	more := s.queue.len() > 0
	leave(inst, more)
	s.free = append(s.free, inst)
	return more
}

// observe tells a learning policy what the batch cost.
func (s *Station) observe(batch *List) {
	if s.learner == nil || batch.Head == nil {
		return
	}
	var x Executed
	rows, longest := int64(0), int64(0)
	for w := batch.Head; w != nil; w = w.next {
		if w.Err != nil {
			return // what failed may have ended early
		}
		rows += int64(w.Rows)
		longest = max(longest, int64(w.length))
		x.Elements += int64(w.Rows) * int64(w.length)
	}
	x.Padding = rows*longest - x.Elements
	x.Took = time.Duration(batch.Head.Times.InferEnd - batch.Head.Times.InputEnd)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.learner.Observe(x)
}

// drop completes works whose clients have gone, which never execute.
func (s *Station) drop(list List, t *Turn) {
	s.runner.Cancel(&list, t.Now())
	s.runner.stats.Queued(-int64(list.n))
	s.pending.Add(-list.n)
	Complete(list, t)
}

// Load returns how many works are queued or executing.
func (s *Station) Load() int64 { return s.pending.n.Load() }

// Drain waits until nothing is queued or executing.
func (s *Station) Drain(ctx context.Context) error { return s.pending.Wait(ctx) }

// Close closes the instances.
func (s *Station) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	s.workers.Reserve(-len(s.all) - 1)
	for _, t := range []*time.Timer{s.timer, s.broom} {
		if t != nil {
			t.Stop()
		}
	}
	var errs []error
	for _, inst := range s.all {
		errs = append(errs, inst.Close())
	}
	return errors.Join(errs...)
}

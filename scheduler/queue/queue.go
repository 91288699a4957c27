// Package queue holds tasks in front of the instances of one model.
//
// Instances pull: a batch is formed when an instance is free, so batches grow while all are busy. A scheduler.Policy
// decides which tasks form it, Levels which tasks may wait and how long. One task, or one sealed batch, that finds a
// free instance and an empty queue is handed to the instance directly.
//
// For example, a queue of at most 100 requests that each wait for at most a second:
//
//	q := queue.New(queue.Settings{
//		Runner: runner, Policy: policy, Instances: instances, Workers: workers,
//		Levels: queue.Levels{Policy: queue.Policy{MaxSize: 100, Timeout: time.Second}},
//	})
package queue

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/internal/pending"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/batch"
	"github.com/tutti-server/tutti/scheduler/deadline"
)

// Queue is a queue in front of a model's instances. It implements scheduler.Scheduler.
type Queue struct {
	runner  *batch.Runner
	policy  scheduler.Policy
	learner scheduler.Learner // the policy, when it learns
	filler  scheduler.Filler  // the policy, when background tasks may join batches
	process *scheduler.Background
	workers *scheduler.Workers
	window  int    // tasks that the policy sees
	order   *order // nil when responses leave as they are ready
	shared  bool   // any number of goroutines may use an instance
	pending pending.Count
	pacing  sync.WaitGroup // instances that freeLater will free
	bid     deadline.Bid   // what it offers device, if there is one

	mu sync.Mutex
	state
}

// state is what the lock of a Queue guards.
type state struct {
	instances
	backlog backlog
	background
	decision decision
	deadlines
	timers    timers
	coalescer coalescer
	flush     bool  // no batch waits for more tasks
	held      int64 // when the policy first delayed what waits
	hold      int   // tasks to wait for before the first batch
	perTask   int64 // ns that a task takes of an instance
	lost      error // why there is no instance any more, see Lose
}

// decision is memory for calls of the policy.
type decision struct {
	items []scheduler.Item
	seen  []*entry // of items
	take  []int32
	turns turns
}

// Settings are the parameters of New.
type Settings struct {
	Runner *batch.Runner
	Policy scheduler.Policy
	// Instances move to the queue, which closes them. One of a concurrent model may occur several times.
	Instances []backends.Instance
	// Limiters are those of the instances at the same positions; nil, or a nil element, for none.
	Limiters []scheduler.Limiter
	// Shared says that any number of goroutines may use an instance, as of a concurrent model.
	Shared  bool
	Workers *scheduler.Workers
	// Levels are the priority levels and limits; none by default.
	Levels Levels
	// Ordered has responses leave in the order in which the requests arrived (preserve_ordering).
	Ordered bool
	// Window is how many tasks of one shape the policy sees, which bounds the cost of a decision; 0 for 128.
	Window int
	// Hold keeps the first batch from forming until so many tasks wait (TRITONSERVER_DELAY_SCHEDULER, for tests).
	Hold int

	_ struct{}
}

// defaultWindow is the default of Settings.Window.
const defaultWindow = 128

// New returns a queue with every instance free.
func New(s Settings) *Queue {
	window := s.Window
	if window <= 0 {
		window = defaultWindow
	}
	q := &Queue{
		runner: s.Runner, policy: s.Policy, workers: s.Workers, window: window, shared: s.Shared,
		state: state{
			hold: s.Hold, backlog: newBacklog(s.Levels, s.Runner.Signature().Model), background: newBackground(s.Levels, s.Runner.Signature().Model),
			decision: decision{take: make([]int32, 0, min(window, defaultWindow))},
		},
	}
	if s.Ordered {
		q.order = &order{complete: q.completeNow}
	}
	q.backlog.shares.of, q.waiting.shares.of = q, q
	q.all = s.Instances
	q.free = q.limit(s.Instances, s.Limiters)
	q.learner, _ = s.Policy.(scheduler.Learner)
	q.runner.Teach(q)
	if s.Runner.Repeats() {
		q.filler, _ = s.Policy.(scheduler.Filler)
	}
	q.process = s.Workers.Background()
	q.workers.Reserve(len(s.Instances) + 1) // and one that waits for a delay to pass
	return q
}

// Enqueue implements scheduler.Scheduler. Tasks that find their level full complete once t runs.
//
// hot: one lock per list.
func (q *Queue) Enqueue(list scheduler.TaskList, t *scheduler.RunLoop) {
	now, background := t.Now(), 0
	for w := list.Head; w != nil; w = w.Next() {
		w.Enqueued = now
		q.runner.Measure(w)
		if w.Meta.Background {
			background++
		}
	}
	q.pending.Add(list.Len())
	if background > 0 {
		if list = q.enqueueBackground(list, background, t); list.Len() == 0 {
			return
		}
	}
	if q.handOff(&list, t) {
		return
	}
	var queued, refused, displaced scheduler.TaskList // queued is read under the lock only: tasks change hands
	q.mu.Lock()
	for w := list.Pop(); w != nil; w = list.Pop() {
		if q.lost != nil {
			w.Err, w.Refusal = q.lost, telemetry.NotServing
			refused.Push(w)
			continue
		}
		if q.unreachable(w, now) {
			refused.Push(w)
			continue
		}
		if q.backlog.push(w, now) || q.pushOver(w, now, &displaced) {
			queued.Push(w)
			continue
		}
		q.refuseFull(w, now)
		refused.Push(w)
	}
	if q.order != nil {
		q.order.join(&queued)
	}
	q.runner.Stats().Queued(int64(queued.Len()))
	q.offer(now)
	ready := len(q.free) > 0 && (!q.coalescer.yielding || q.full(&q.backlog))
	if ready {
		q.ask()
	} else {
		q.sweepLater(now)
	}
	q.mu.Unlock()
	if refused.Len() > 0 {
		t.Inline(refusal{q}, refused)
	}
	if displaced.Len() > 0 {
		t.Inline(displacement{q}, displaced)
	}
	if ready {
		t.Ready(q)
	}
}

// refusal completes tasks that the queue has no room for.
type refusal struct{ *Queue }

// RunInline implements scheduler.Inliner.
func (r refusal) RunInline(list scheduler.TaskList, t *scheduler.RunLoop) {
	r.runner.Drop(&list, t.Now())
	r.completeNow(list, t)
}

// Help executes one batch, if an instance is free and the policy forms one.
//
// hot: two short locks and no allocation.
func (q *Queue) Help(t *scheduler.RunLoop) bool {
	var dropped scheduler.TaskList
	x, more := q.next(t, &dropped)
	if more {
		q.workers.Go(q)
	}
	if dropped.Len() > 0 {
		q.drop(dropped, t)
	}
	if x == nil {
		return dropped.Len() > 0
	}
	q.runner.Stats().Queued(-int64(x.tasks.Len()))
	if x.beside {
		q.workers.Go(x)
		return true
	}
	x.run(t)
	return true
}

// next takes a free instance and a batch for it; nil when there is no instance or no batch yet. Expired tasks that it
// comes across move to dropped. more reports that another instance is free while tasks are queued.
func (q *Queue) next(t *scheduler.RunLoop, dropped *scheduler.TaskList) (x *execution, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.companionsLikely() && !q.coalescer.yielding && q.hold == 0 && len(q.free) > 0 && q.backlog.n > 0 && !q.full(&q.backlog) {
		q.yield(t, &q.backlog)
	}
	now := t.Now()
	switch {
	case q.lost != nil:
		q.backlog.fail(q.lost, dropped)
		q.waiting.fail(q.lost, dropped)
		return nil, false
	case len(q.free) == 0:
		q.askForBackground(now)
		return nil, false
	case q.backlog.n == 0 && q.waiting.n > 0:
		return q.nextBackground(now, t, dropped)
	case q.backlog.n == 0:
		q.offer(now)
		q.releaseIdle()
		return nil, false
	case q.hold > q.backlog.n:
		q.releaseIdle()
		q.sweepLater(now)
		return nil, false
	}
	q.hold = 0
	take, wait := q.form(&q.backlog, now, dropped)
	if q.backlog.n > 0 {
		q.sweepLater(now)
	}
	q.askForBackground(now)
	if len(take) == 0 {
		q.releaseIdle()
		if q.backlog.n > 0 {
			if q.held == 0 {
				q.held = now
			}
			q.askLater(now, wait)
		}
		return nil, false
	}
	q.offer(now)
	inst := q.admit()
	if inst == nil {
		return nil, false // its limiter resumes it
	}
	tasks := q.pull(&q.backlog, take)
	q.offer(now)
	tasks.Head.Held, q.held = q.held, 0
	riders := q.fill(&tasks, now)
	return q.start(inst, tasks, riders), len(q.free) > 0 && q.backlog.n > 0
}

// form asks the policy for a batch of the shape to serve next. Tasks queued behind it that cannot join close the batch:
// it does not wait for more. It returns positions in the view, for pull. Called with the lock held.
func (q *Queue) form(b *backlog, now int64, dropped *scheduler.TaskList) (take []int32, wait time.Duration) {
	if q.dated(b) {
		return q.formDated(b, now, dropped)
	}
	for len(b.heap) > 0 {
		g := b.heap[0]
		v := q.view(b, g, nil, now, dropped)
		if len(v.Items) == 0 || len(b.heap) == 0 || b.heap[0] != g {
			continue // its first tasks were dropped or delayed
		}
		d := q.policy.Decide(now, v, q.decision.take[:0])
		return d.Take, d.Wait
	}
	return nil, longest
}

// view returns the tasks of a group from one on, nil for the first, of which it drops those that have expired.
func (q *Queue) view(b *backlog, g *group, from *entry, now int64, dropped *scheduler.TaskList) scheduler.View {
	if b.shares.several() {
		return q.viewOfClients(b, g, now, dropped)
	}
	d := &q.decision
	clear(d.seen)
	d.items, d.seen = d.items[:0], d.seen[:0]
	e := from
	if e == nil {
		e = g.after(nil)
	}
	for e != nil && len(d.items) < q.window {
		after := g.after(e)
		if b.check(e, now, dropped) {
			d.items = append(d.items, item(e.task))
			d.seen = append(d.seen, e)
		}
		e = after
	}
	return scheduler.View{
		Items: d.items, More: e != nil, Instances: int32(len(q.all)), Executing: q.rows, Queued: b.rows,
		Flush: q.flush, Closed: len(b.heap) > 1,
	}
}

// item returns what the policy sees of w.
func item(w *scheduler.Task) scheduler.Item {
	return scheduler.Item{Shape: w.Shape, Length: w.Length, Rows: w.Rows, Elements: w.Elements, Enqueued: w.Enqueued}
}

// pull takes the tasks at the given ascending positions of the view that can share a batch with the first of them.
func (q *Queue) pull(b *backlog, positions []int32) (list scheduler.TaskList) {
	first := q.decision.seen[positions[0]].task
	for _, i := range positions {
		if e := q.decision.seen[i]; e.task == first || q.runner.Compatible(first, e.task) {
			list.Push(b.serve(e))
		}
	}
	return list
}

// drop completes tasks that do not execute, each with its error.
func (q *Queue) drop(list scheduler.TaskList, t *scheduler.RunLoop) {
	q.runner.Stats().Queued(-int64(list.Len()))
	q.runner.Drop(&list, t.Now())
	q.completeInOrder(list, t)
}

// complete completes tasks, in order of arrival where the settings say so.
func (q *Queue) completeInOrder(list scheduler.TaskList, t *scheduler.RunLoop) {
	if q.order != nil {
		list = q.completeBackground(list, t)
	}
	switch {
	case q.order == nil:
		q.completeNow(list, t)
	case list.Len() == 0:
	case q.order.end(list, t):
		q.workers.Reserve(1)
		q.workers.Go(early{q})
	}
}

// leave completes tasks in any order.
func (q *Queue) completeNow(list scheduler.TaskList, t *scheduler.RunLoop) {
	q.pending.Add(-list.Len())
	scheduler.Complete(list, t)
}

// Flush implements scheduler.Flusher.
func (q *Queue) Flush() {
	q.mu.Lock()
	q.flush, q.hold = true, 0
	q.mu.Unlock()
	q.workers.Go(q)
}

// InFlight returns how many tasks are queued or executing.
func (q *Queue) InFlight() int64 { return q.pending.Now() }

// Drain waits until no task is queued or executing.
func (q *Queue) Drain(ctx context.Context) error { return q.pending.Wait(ctx) }

// Close closes the instances.
func (q *Queue) Close() error {
	q.pacing.Wait()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.timers.closed {
		return nil
	}
	q.timers.closed = true
	for _, t := range []*time.Timer{q.timers.policy, q.timers.sweeper} {
		if t != nil {
			t.Stop()
		}
	}
	q.workers.Reserve(-len(q.all) - 1)
	var errs []error
	for _, inst := range q.all {
		errs = append(errs, inst.Close())
	}
	return errors.Join(errs...)
}

package queue

import (
	"maps"
	"time"

	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler"
)

// background is the part of a queue for background tasks. They wait in a list of their own, so that they are in nobody's way: they fill
// batches of online tasks where that costs little (fill), and have batches of their own while scheduler.Background allows it. The queue's
// lock guards it.
type background struct {
	waiting backlog
	perRow  int64 // ns that a row takes in a batch of background tasks, 0: not known
	alone   int64 // until when no background task joins a batch of online ones
}

const (
	// maxOwn bounds how long a batch of several background tasks takes, because an online task may come and wait for it.
	maxOwn = 20 * time.Millisecond
	// apart is how long no background task joins a batch of online ones after such a batch failed: its tasks were executed twice.
	apart = 10 * time.Second
)

// newBackground returns the list of a queue with the levels l. The sizes of levels hold for background tasks by themselves. Their
// timeouts do not hold: a background task waits for as long as its client does.
func newBackground(l Levels, model string) background {
	l.Policy.Timeout = 0
	l.Policies = maps.Clone(l.Policies)
	for number, p := range l.Policies {
		p.Timeout = 0
		l.Policies[number] = p
	}
	return background{waiting: newBacklog(l, model)}
}

// ordered reports whether the responses of w leave in order of arrival. Those of background tasks do not: they would delay others.
func (q *Queue) ordered(w *scheduler.Task) bool { return q.order != nil && !w.Meta.Background }

// enqueueBackground enqueues the n background tasks of a list and returns the others. A seal stays on both parts.
func (q *Queue) enqueueBackground(list scheduler.TaskList, n int, t *scheduler.RunLoop) (online scheduler.TaskList) {
	own := list
	if n < list.Len() {
		own, online = separate(list)
	}
	if q.handOffBackground(&own, t) {
		return online
	}
	var refused scheduler.TaskList
	now := t.Now()
	q.mu.Lock()
	for w := own.Pop(); w != nil; w = own.Pop() {
		switch {
		case q.lost != nil:
			w.Err, w.Refusal = q.lost, telemetry.NotServing
		case q.waiting.push(w, now):
			continue
		default:
			w.Err, w.Refusal = q.waiting.levels.errFull(w.Meta.Priority, q.perTask/int64(len(q.all)), 0), telemetry.QueueFull
		}
		refused.Push(w)
	}
	q.runner.Stats().Queued(int64(n - refused.Len()))
	ready := len(q.free) > 0 && q.backlog.n == 0 && q.mayExecute(now) && (!q.coalescer.yielding || q.full(&q.waiting))
	if !ready {
		q.sweepLater(now)
		q.askForBackground(now)
	}
	q.mu.Unlock()
	if refused.Len() > 0 {
		t.Inline(refusal{q}, refused)
	}
	if ready {
		t.Ready(q)
	}
	return online
}

// separate divides a list into its background tasks and the others.
func separate(list scheduler.TaskList) (background, online scheduler.TaskList) {
	sealed := list.Sealed()
	for w := list.Pop(); w != nil; w = list.Pop() {
		if w.Meta.Background {
			background.Push(w)
		} else {
			online.Push(w)
		}
	}
	if sealed {
		background.Seal()
		online.Seal()
	}
	return background, online
}

// completeBackground completes the background tasks of a list and returns the others.
func (q *Queue) completeBackground(list scheduler.TaskList, t *scheduler.RunLoop) scheduler.TaskList {
	own, online := separate(list)
	if own.Len() > 0 {
		q.completeNow(own, t)
	}
	return online
}

// mayExecute reports whether a batch of background tasks may execute; start asks again. Called with the lock held.
func (q *Queue) mayExecute(now int64) bool {
	return q.flush || q.process.Quiet(now) || len(q.free) > 1
}

// startBackground asks for the execution of a batch of background tasks. On true q.process.Done must follow. Called with the lock held.
func (q *Queue) startBackground(now int64) (ok, beside bool) {
	if q.flush {
		q.process.Force()
		return true, true
	}
	return q.process.Start(now, len(q.free) > 1)
}

// askForBackground has a worker look for background tasks to execute, if there are any and the process is not quiet. While it is, the
// end of each batch does so. Called with the lock held.
func (q *Queue) askForBackground(now int64) {
	if q.waiting.n > 0 && !q.process.Quiet(now) {
		q.askLater(now, q.process.Wait(now))
	}
}

// nextBackground is next when only background tasks wait; called with the lock held and an instance free.
func (q *Queue) nextBackground(now int64, t *scheduler.RunLoop, dropped *scheduler.TaskList) (x *execution, more bool) {
	ok, beside := q.startBackground(now)
	if !ok {
		q.releaseIdle()
		q.sweepLater(now)
		q.askForBackground(now)
		return nil, false
	}
	if q.companionsLikely() && !q.coalescer.yielding && !q.full(&q.waiting) {
		q.yield(t, &q.waiting)
		now = t.Now()
		if q.backlog.n > 0 || len(q.free) == 0 {
			q.process.Done()
			t.Ready(q) // an online task has come meanwhile
			return nil, false
		}
	}
	take, wait := q.form(&q.waiting, now, dropped)
	if q.waiting.n > 0 {
		q.sweepLater(now)
	}
	if len(take) == 0 {
		q.process.Done()
		q.releaseIdle()
		if q.waiting.n > 0 {
			q.askLater(now, wait)
		}
		return nil, false
	}
	take = q.bound(take)
	inst := q.admit()
	if inst == nil {
		q.process.Done()
		return nil, false // its limiter resumes it
	}
	tasks := q.pull(&q.waiting, take)
	tasks.Head.Held = 0
	x = q.start(inst, tasks, 0)
	x.own, x.beside = true, beside
	return x, len(q.free) > 0 && q.waiting.n > 0
}

// bound returns as many of the first tasks that form took as can execute within maxOwn. Until the cost of a row is known, it is one.
func (q *Queue) bound(take []int32) []int32 {
	rows := int64(0)
	for i, at := range take {
		rows += int64(q.decision.seen[at].task.Rows)
		if i > 0 && (q.perRow == 0 || rows*q.perRow > int64(maxOwn)) {
			return take[:i]
		}
	}
	return take
}

// handOffBackground is handOff for background tasks.
func (q *Queue) handOffBackground(list *scheduler.TaskList, t *scheduler.RunLoop) bool {
	n, now := list.Len(), t.Now()
	if !q.canHandOff(list, now) {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case len(q.free) == 0, q.backlog.n > 0, q.waiting.n > 0, q.hold > n:
		return false
	case n > 1 && (q.perRow == 0 || int64(list.Rows())*q.perRow > int64(maxOwn)):
		return false
	case n == 1 && q.companionsLikely(), !q.takesAll(list, now):
		return false
	}
	ok, beside := q.startBackground(now)
	if !ok {
		return false
	}
	inst := q.admit()
	if inst == nil {
		q.process.Done()
		return false
	}
	q.hold = 0
	list.Head.Held = 0
	x := q.start(inst, *list, 0)
	x.own, x.beside = true, beside
	switch {
	case beside:
		q.workers.Go(x)
	case q.brief(n):
		t.ReadyBrief(x)
	default:
		t.Ready(x)
	}
	return true
}

// fill adds background tasks to a batch of online ones, as the policy allows, and returns how many. Called with the lock held.
//
// hot: one comparison while no background task waits.
func (q *Queue) fill(list *scheduler.TaskList, now int64) int {
	if q.waiting.n == 0 || q.filler == nil || now < q.alone {
		return 0
	}
	g := q.waiting.first(list.Head.Shape)
	if g == nil {
		return 0
	}
	d := &q.decision
	clear(d.seen)
	d.items, d.seen = d.items[:0], d.seen[:0]
	for e := g.after(nil); e != nil && len(d.items) < q.window; e = g.after(e) {
		if e.task.Expired(now) == nil && q.runner.Compatible(list.Head, e.task) {
			d.items = append(d.items, item(e.task))
			d.seen = append(d.seen, e)
		}
	}
	if len(d.items) == 0 {
		return 0
	}
	take := q.filler.Fill(formed(list), d.items, d.take[:0])
	for _, i := range take {
		list.Push(q.waiting.serve(d.seen[i]))
	}
	return len(take)
}

// formed returns the size of a batch.
func formed(list *scheduler.TaskList) (f scheduler.Formed) {
	for w := list.Head; w != nil; w = w.Next() {
		f.Rows += w.Rows
		f.Length = max(f.Length, w.Length)
		f.Elements += w.Elements
		f.Unpadded += int64(w.Rows) * int64(w.Length)
	}
	return f
}

// endBackground notes the end of an execution as far as it matters to background tasks, and reports whether some may execute now.
// known says that cost is the batch's, together that the batch did not fail. Called with the lock held.
func (q *Queue) endBackground(x *execution, cost *scheduler.Executed, known, together bool) bool {
	now := telemetry.Now()
	if x.own {
		q.process.Done()
		if known && cost.Rows > 0 {
			sample := int64(cost.Duration) / cost.Rows
			if q.perRow == 0 {
				q.perRow = sample
			}
			q.perRow = max(q.perRow+(sample-q.perRow)/costWeight, 1)
		}
	}
	if x.riders > 0 && !together {
		q.alone = now + int64(apart)
	}
	return q.waiting.n > 0 && (q.flush || x.own || q.process.Quiet(now))
}

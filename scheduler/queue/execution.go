package queue

import (
	"runtime"
	"slices"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/batch"
)

// execution is one batch at one instance, from when both are known until the instance is free
// again. It is pooled by its queue, so that starting one allocates nothing.
//
// For a RunLoop it is a scheduler whose Help executes the batch; for the tasks of a decoupled model it is their
// BatchHandle.
type execution struct {
	*Queue
	tasks    scheduler.TaskList
	inst     backends.Instance
	rows     int32
	ends     int64 // when it is expected to end, 0 for unknown
	detached bool  // the instance is free, the batch goes on; guarded by mu
	own      bool  // all tasks are background ones
	beside   bool  // as own, and there are online requests
	hold     bool  // its instance becomes free when its tasks are complete
	riders   int   // background tasks in a batch of online ones
	next     *execution
}

// start returns an execution of the tasks, of which the last riders are background ones in a batch of online ones. Called with the lock held.
func (q *Queue) start(inst backends.Instance, tasks scheduler.TaskList, riders int) *execution {
	x := q.spare
	if x == nil {
		x = &execution{Queue: q}
	} else {
		q.spare = x.next
	}
	x.tasks, x.inst, x.rows, x.riders, x.next = tasks, inst, tasks.Rows(), riders, nil
	q.rows += x.rows
	x.ends = q.begins(&x.tasks)
	return x
}

// Help executes the batch that was handed off.
func (x *execution) Help(t *scheduler.RunLoop) bool {
	x.run(t)
	return true
}

// run executes the batch and completes its tasks. x is reused before they complete.
func (x *execution) run(t *scheduler.RunLoop) {
	q, tasks := x.Queue, x.tasks
	if q.runner.Signature().Decoupled {
		for w := tasks.Head; w != nil; w = w.Next() {
			w.Host = x
		}
	}
	together, behind := q.runner.Run(x.inst, &tasks, t), q.runner.Behind(x.inst)
	if q.goOn(x, &tasks, together, t) {
		return
	}
	hold := behind == nil && q.holds(&tasks)
	x.hold = hold
	if q.end(x, &tasks, together, behind) {
		t.Ready(q)
	}
	q.completeInOrder(tasks, t)
	if hold && q.let(x) {
		t.Ready(q)
	}
}

// goOn completes the tasks of an execution that were executed, if others were left, and has those execute at the same instance: half of them
// at another one if one is free. It drops those that have expired meanwhile. It does nothing and returns false when none is left.
//
// hot: a comparison when all were executed.
func (q *Queue) goOn(x *execution, tasks *scheduler.TaskList, together bool, t *scheduler.RunLoop) bool {
	rest := tasks.CutUnexecuted()
	if rest.Head == nil {
		return false
	}
	var own, others, expired scheduler.TaskList
	for w := rest.Pop(); w != nil; w = rest.Pop() {
		if w.Expired(t.Now()) != nil {
			w.Apart = false
			expired.Push(w)
		} else {
			own.Push(w)
		}
	}
	if expired.Head != nil {
		q.runner.Cancel(&expired, t.Now())
		q.completeInOrder(expired, t)
	}
	if own.Head == nil {
		return false
	}
	var cost scheduler.Executed
	known := together && q.measure(&cost, tasks)
	var y *execution
	q.mu.Lock()
	q.learn(tasks, &cost, known, false)
	if len(q.free) > 0 && own.Len() > 1 && !x.own {
		if inst := q.admit(); inst != nil {
			for n := own.Len(); own.Len() > n/2; {
				others.Push(own.Pop())
			}
			own, others = others, own
			y = q.start(inst, others, 0)
			x.rows, q.rows = x.rows-y.rows, q.rows-y.rows
		}
	}
	x.tasks = own
	q.mu.Unlock()
	if y != nil {
		q.workers.Go(y)
	}
	q.completeInOrder(*tasks, t)
	t.Ready(x)
	return true
}

// holds reports whether the device that models with deadlines share stays the batch's until its tasks are complete: then the steps that
// follow are among those that wait for the device. Else it would go to another model, and what has begun would wait for a batch more.
func (q *Queue) holds(tasks *scheduler.TaskList) bool {
	if q.device == nil || !q.device.Watched() || q.runner.Signature().Decoupled {
		return false
	}
	p := tasks.Head.Path
	return p != nil && p.Prompt && p.Rest.Load() > 0
}

// let frees the instance of an execution that has held it, and reports whether tasks wait for one.
func (q *Queue) let(x *execution) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	more := q.backlog.n > 0
	q.letGo(x, more)
	q.reuse(x)
	return (more || q.waiting.n > 0) && len(q.free) > 0
}

// letGo frees the instance of an execution. Called with the lock held.
func (q *Queue) letGo(x *execution, more bool) {
	q.rows -= x.rows
	q.ended(x.ends)
	q.freeInstance(x.inst, more)
}

// reuse keeps an execution for another batch. Called with the lock held.
func (q *Queue) reuse(x *execution) {
	x.tasks, x.inst, x.detached, x.own, x.beside, x.hold = scheduler.TaskList{}, nil, false, false, false, false
	x.next, q.spare = q.spare, x
}

// freeLater frees an instance at a device once the device has reached an event of the instance's stream.
func (q *Queue) freeLater(inst backends.Instance, rows int32, ends int64, e tensor.Event) {
	defer q.pacing.Done()
	_ = e.Wait() // an error is one of the batch before it
	q.mu.Lock()
	more := q.backlog.n > 0
	q.rows -= rows
	q.ended(ends)
	q.freeInstance(inst, more)
	more = more || q.waiting.n > 0
	q.mu.Unlock()
	if more {
		q.workers.Go(q)
	}
}

// end frees the instance of an execution, learns what it cost and reports whether tasks wait for the instance. An instance at a device
// that is behind becomes free when the device reaches the event behind.
func (q *Queue) end(x *execution, tasks *scheduler.TaskList, together bool, behind tensor.Event) bool {
	var cost scheduler.Executed
	known := together && q.measure(&cost, tasks)
	if cost.Unpadded > 0 {
		q.runner.Stats().Padded(cost.Unpadded, cost.Padding)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	more := q.backlog.n > 0
	switch c := &q.coalescer; {
	case tasks.Len()-x.riders > 1 && !q.runner.SerialList(tasks):
		c.attempts = creditOfMany
	case c.attempts > -retryAfterAlone:
		c.attempts--
	default:
		c.attempts = 1
	}
	switch {
	case x.detached:
		q.workers.Reserve(-1)
		at := slices.IndexFunc(q.detached, func(inst backends.Instance) bool { return batch.Same(inst, x.inst) })
		q.detached = slices.Delete(q.detached, at, at+1)
		if i := q.removedIndex(x.inst); i >= 0 {
			q.endUse(i, x.inst)
		}
	case behind != nil:
		q.pacing.Add(1)
		go q.freeLater(x.inst, x.rows, x.ends, behind)
	case x.hold:
	default:
		q.letGo(x, more)
	}
	if q.waiting.n > 0 || x.own || x.riders > 0 {
		more = q.endBackground(x, &cost, known, together) || more
	}
	q.learn(tasks, &cost, known, x.riders > 0)
	if !x.hold {
		q.reuse(x)
	}
	return more && len(q.free) > 0
}

// learn adds what executed tasks cost, if it is known, to what the queue expects of others. mixed reports that background tasks are among
// them. Called with the lock held.
func (q *Queue) learn(tasks *scheduler.TaskList, cost *scheduler.Executed, known, mixed bool) {
	if known && !mixed {
		sample := int64(cost.Duration) / int64(tasks.Len())
		q.perTask = max(q.perTask+(sample-q.perTask)/costWeight, 1) // a moving average; 0: not known
	}
	if w := tasks.Head; w != nil && w.Probe {
		w.Probe = false
		q.probes.Ended(telemetry.Now(), telemetry.Now() <= w.Due())
	}
	if known && !tasks.Head.Measured.Any() { // else Learn has the device's time
		q.observe(cost)
	}
}

// costWeight is the weight of the former cost of a task against that of the newest batch.
const costWeight = 8

// measure sets x to the cost of a batch that was executed as a whole, with the host's time. It returns false for one that failed, because
// it may have ended early. x is where the result is read, because copying what was just written stalls the processor.
func (q *Queue) measure(x *scheduler.Executed, tasks *scheduler.TaskList) (known bool) {
	if tasks.Head == nil || !batch.Cost(x, tasks.Head) {
		return false
	}
	x.Duration = time.Duration(tasks.Head.Times.InferEnd - tasks.Head.Times.InputEnd)
	if q.runner.SerialList(tasks) {
		x.Duration *= time.Duration(tasks.Len()) // its tasks have shares of the time
	}
	return true
}

// Learn implements telemetry.Learner for batches at devices.
func (q *Queue) Learn(c telemetry.Cost, ns int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.observe(&scheduler.Executed{
		Rows: c.Rows, Elements: c.Elements, Unpadded: c.Unpadded, Padding: c.Padding, Duration: time.Duration(ns),
	})
}

// wakeup is what it costs, in ns, to have a worker on another processor execute a batch, and to wake up again.
const wakeup = 5000

// handOff starts the tasks at a free instance, past the queue, and reports whether it did. The tasks must be one task
// or one sealed batch. Nothing may be queued before them, no client may have disconnected, a single task must not have
// likely companions (coalescer), and the policy must form the very same batch. Otherwise the tasks are for the backlog.
//
// hot: one lock and no allocation.
func (q *Queue) handOff(list *scheduler.TaskList, t *scheduler.RunLoop) bool {
	n, now := list.Len(), t.Now()
	if !q.canHandOff(list, now) {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case len(q.free) == 0, q.backlog.n > 0, q.hold > n: // there is a queue to join
		return false
	case n == 1 && q.companionsLikely(), q.backlog.late(list.Head, now), !q.takesAll(list, now), q.late(list, now):
		return false
	}
	inst := q.admit()
	if inst == nil {
		return false
	}
	q.hold = 0
	if q.order != nil {
		q.order.join(list)
	}
	list.Head.Held = 0
	riders := q.fill(list, now)
	q.runner.Stats().Queued(-int64(riders))
	if x := q.start(inst, *list, riders); q.brief(n) {
		t.ReadyBrief(x)
	} else {
		t.Ready(x)
	}
	return true
}

// canHandOff reports whether the tasks are one batch, and none has expired.
func (q *Queue) canHandOff(list *scheduler.TaskList, now int64) bool {
	if n := list.Len(); n > 1 && (!list.Sealed() || n > q.window || !q.runner.Uniform(list)) {
		return false
	}
	for w := list.Head; w != nil; w = w.Next() {
		if w.Expired(now) != nil {
			return false
		}
	}
	return true
}

// brief reports whether n tasks execute faster than a worker wakes up. A decoupled model may block until its client reads. Its batch may
// go to a worker, so that it does not block the other tasks of the goroutine.
func (q *Queue) brief(n int) bool {
	return !q.runner.Signature().Decoupled && q.perTask > 0 && q.perTask*int64(n) < wakeup
}

// takesAll reports whether the policy would form one batch of all the tasks. Called with the lock held.
func (q *Queue) takesAll(list *scheduler.TaskList, now int64) bool {
	d := &q.decision
	d.items = d.items[:0]
	for w := list.Head; w != nil; w = w.Next() {
		d.items = append(d.items, item(w))
	}
	v := scheduler.View{Items: d.items, Instances: int32(len(q.all)), Executing: q.rows, Queued: list.Rows(), Flush: q.flush}
	return len(q.policy.Decide(now, v, d.take[:0]).Take) == list.Len()
}

// Respond implements scheduler.BatchHandle.
func (x *execution) Respond(to scheduler.Responder, w *scheduler.Task, out []tensor.Tensor, params infer.Params, final bool) error {
	if x.ordered(w) && x.order.deferResponse(to, w, out, params, final) {
		return nil
	}
	return to.Respond(w, out, params, final)
}

// Fail implements scheduler.BatchHandle. Where responses leave in order, a failure leaves when the task completes.
func (x *execution) Fail(to scheduler.Failer, w *scheduler.Task, err error, final bool) {
	if !x.ordered(w) {
		to.Fail(w, err, final)
	}
}

// Detach implements scheduler.BatchHandle: the batch keeps its worker, and another batch may take the instance.
func (x *execution) Detach() {
	q := x.Queue
	q.mu.Lock()
	detach, more := !q.shared && !q.timers.closed && !x.detached, q.backlog.n > 0
	if detach {
		x.detached = true
		q.rows -= x.rows
		q.ended(x.ends)
		q.detached = append(q.detached, x.inst)
		if i := q.removedIndex(x.inst); i >= 0 {
			q.removed[i].uses++
		}
		q.freeInstance(x.inst, more)
	}
	q.mu.Unlock()
	q.replace(detach, more)
}

// replace provides another worker for a task that gave up its instance, and has it execute when more are queued.
func (q *Queue) replace(gaveUp, more bool) {
	if gaveUp {
		q.workers.Reserve(1)
		if more {
			q.workers.Go(q)
		}
	}
}

// canLend reports whether another task may use the instance of a paused one. The limiters of a shared instance never change.
func (q *Queue) canLend() bool { return q.shared && len(q.limited) == 0 && !q.timers.closed }

// Yields implements scheduler.BatchHandle.
func (x *execution) Yields() bool { return x.shared && len(x.limited) == 0 && x.order == nil }

// Pause implements scheduler.BatchHandle. The goroutine that sends early responses has no instance to free.
func (x *execution) Pause(w *scheduler.Task) {
	q := x.Queue
	if q.ordered(w) && !q.order.isOpen(w) {
		return
	}
	q.mu.Lock()
	if !x.detached {
		release(x.inst, false)
	}
	lends, more := q.canLend(), q.backlog.n > 0
	if lends {
		q.free = append(q.free, x.inst)
	}
	q.mu.Unlock()
	q.replace(lends, more)
}

// Resume implements scheduler.BatchHandle. When no instance is free, the next one that becomes free is this task's.
func (x *execution) Resume(w *scheduler.Task) {
	q := x.Queue
	if q.ordered(w) && !q.order.isOpen(w) {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.canLend() {
		return
	}
	if n := len(q.free); n > 0 {
		q.free = q.free[:n-1]
	} else {
		q.reserved++
	}
	q.workers.Reserve(-1)
}

// coalescer decides whether to delay a partial batch for requests that are likely to come: clients whose responses left
// together tend to send their next requests together. Goroutines that are ready to run but have no processor cannot
// have sent yet, so a goroutine that would execute less than a full batch yields to them first. The instance stays free
// meanwhile. Without the delay, callers that share too few processors would execute their requests one by one.
//
// For example, eight clients in a loop on two processors: after one batch of eight, the first of
// them is back while seven wait for a processor. It yields, and the next batch has eight again.
type coalescer struct {
	// attempts is how many batches of one may follow before no companion is likely; below zero it counts those that did.
	attempts int
	// yielding reports that a goroutine yields and then forms a batch.
	yielding bool
}

const (
	// creditOfMany is the number of attempts after a batch of several tasks.
	creditOfMany = 16
	// retryAfterAlone is after how many batches of one it tries again, which costs a single client a few ns a request.
	retryAfterAlone = 64
	// maxYield bounds how long a goroutine yields while each time more tasks come.
	maxYield = 50 * time.Microsecond
	// minCost is what a task must take of an instance, in ns: below it a model is faster without a batch.
	minCost = 250
)

// companionsLikely reports whether more tasks are likely to come that are worth a delay. Called with the lock held.
func (q *Queue) companionsLikely() bool { return q.coalescer.attempts > 0 && q.perTask > minCost }

// full reports whether a backlog has rows for a full batch.
func (q *Queue) full(b *backlog) bool { return b.rows >= int32(q.runner.Signature().MaxBatch) }

// yield lets other goroutines run as long as that brings more tasks to b. The lock is held before and after.
func (q *Queue) yield(t *scheduler.RunLoop, b *backlog) {
	q.coalescer.yielding = true
	until := t.Now() + int64(maxYield)
	for rows := int32(0); rows < b.rows && !q.full(b) && t.Now() < until; {
		rows = b.rows
		q.mu.Unlock()
		runtime.Gosched()
		q.mu.Lock()
		t.Tick(telemetry.Now())
	}
	q.coalescer.yielding = false
}

// Package guarded puts a timeout, retries and a circuit breaker in front of the scheduler of a step's model. Each ensemble has its own for a
// step; the model's scheduler is shared with others.
//
// An attempt is a task of its own at the inner scheduler, so that the task of the request can complete before the model is done. What the
// model returns later is released.
//
// For example, a step with a timeout of 50 ms and one retry:
//
//	0 ms    Enqueue: the first attempt is enqueued at the inner scheduler
//	50 ms   the first attempt is abandoned: its context ends, and the second attempt is enqueued
//	60 ms   the second attempt is done: the task completes with its outputs
//	400 ms  the model ends the first attempt: its outputs are released
package guarded

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/pending"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/deadline"
)

// Settings are the parameters of New.
type Settings struct {
	// Inner executes the attempts. Its owner drains and closes it.
	Inner scheduler.Scheduler
	// Step is the name of the step, for errors.
	Step string
	// Timeout bounds each attempt, 0 for none; Retries is how often a failed one is repeated; Breaker may be nil.
	Timeout time.Duration
	Retries int
	Breaker *config.Breaker
	Workers *scheduler.Workers

	_ struct{}
}

// Scheduler implements scheduler.Scheduler and scheduler.Flusher.
type Scheduler struct {
	s       Settings
	breaker *breaker
	pending pending.Count // tasks that are not completed

	mu    sync.Mutex
	queue []scheduler.TaskList // attempts with a timeout that no worker has taken yet, guarded by mu
}

// New returns a scheduler that passes tasks to s.Inner.
func New(s Settings) *Scheduler {
	return &Scheduler{s: s, breaker: newBreaker(s.Breaker, s.Step)}
}

// Counts reports whether an error is a fault of the step, which counts for its breaker and may be replaced by a fallback or an optional
// result. Errors of the request's own input, and those of requests that were cancelled or whose deadline passed, are none: another model
// could only hide them.
//
// For example, Unavailable and Internal count, InvalidArg and Cancelled do not.
func Counts(err error) bool {
	if status.MissesDeadline(err) {
		return false
	}
	switch status.CodeOf(err) {
	case status.Unavailable, status.Internal, status.Unknown, status.NotFound:
		return true
	case status.InvalidArg, status.Unsupported, status.AlreadyExists, status.Cancelled, status.ResourceExhausted:
	}
	return false
}

// Retryable reports whether the same request may succeed when it is sent again. An execution that failed may; a server that cannot serve
// says whether it will: not if, for example, the request ends the process of the model again and again.
func Retryable(err error) bool {
	switch code := status.CodeOf(err); {
	case !Counts(err), code == status.NotFound:
		return false
	case code == status.Unavailable:
		return status.Retryable(err)
	}
	return true
}

// call is a task of a request, from Enqueue to its completion.
type call struct {
	task    *scheduler.Task
	retries int32
}

// attempt is one execution of a call's task.
type attempt struct {
	scheduler.Task

	call      *call               // not to be used once the attempt is abandoned
	to        scheduler.Completer // of the call's task
	of        any                 // the Run of the call's task
	probe     bool
	abandoned atomic.Bool // its result is not used: set once, by the timer or by the completion
	cancel    context.CancelFunc
	timer     *time.Timer
	meta      infer.Meta
	affinity  scheduler.Affinity
	traced    scheduler.TaskTrace
}

// Enqueue implements scheduler.Scheduler.
func (g *Scheduler) Enqueue(list scheduler.TaskList, t *scheduler.RunLoop) {
	g.pending.Add(list.Len())
	t.Inline(g, list)
}

// Load implements scheduler.Measurable.
func (g *Scheduler) Load() scheduler.Load { return scheduler.LoadOf(g.s.Inner) }

// Forecast implements scheduler.Forecaster, for an attempt that succeeds.
func (g *Scheduler) Forecast(now, due int64, of *infer.Client) (deadline.Stage, bool) {
	return scheduler.ForecastOf(g.s.Inner, now, due, of)
}

// RunInline starts the first attempt of each task. Those of a sealed list stay together.
func (g *Scheduler) RunInline(list scheduler.TaskList, t *scheduler.RunLoop) {
	var done, rest scheduler.TaskList
	sealed := list.Sealed()
	list.Stamp(t.Now())
	for w := list.Pop(); w != nil; w = list.Pop() {
		g.try(&call{task: w}, &done, &rest, t)
	}
	if sealed && done.Len() == 0 {
		rest.Seal()
	}
	g.finish(done, rest, t)
}

// finish completes tasks and enqueues attempts. Those with a timeout are enqueued by a worker: the goroutine of the request must not execute
// what it may have to leave.
func (g *Scheduler) finish(done, rest scheduler.TaskList, t *scheduler.RunLoop) {
	switch n := rest.Len(); {
	case n == 0:
	case g.s.Timeout == 0:
		g.s.Inner.Enqueue(rest, t)
	default:
		g.s.Workers.Reserve(n)
		g.mu.Lock()
		g.queue = append(g.queue, rest)
		g.mu.Unlock()
		g.s.Workers.Go(g)
	}
	if n := done.Len(); n > 0 {
		scheduler.Complete(done, t)
		g.pending.Add(-n)
	}
}

// try adds the first attempt of a call to rest, or the call's task to done when none may be made.
func (g *Scheduler) try(c *call, done, rest *scheduler.TaskList, t *scheduler.RunLoop) {
	probe, err := g.breaker.allow(t.Now())
	if err != nil {
		g.event(c.task, t.Now(), err.Error())
		g.fail(c, err, done)
		return
	}
	if probe {
		g.event(c.task, t.Now(), "the circuit breaker of '"+g.s.Step+"' sends a probe")
	}
	rest.Push(&g.attempt(c, probe).Task)
}

// attempt returns the next attempt of a call. It shares no memory with the request, which may end first.
func (g *Scheduler) attempt(c *call, probe bool) *attempt {
	w := c.task
	a := &attempt{call: c, to: w.To, of: w.Run, probe: probe, meta: *w.Meta}
	a.TaskRequest = w.TaskRequest
	a.To, a.Run, a.Meta = g, a, &a.meta
	a.In, a.Out = make([]tensor.Tensor, len(w.In)), make([]tensor.Tensor, len(w.Out))
	for i := range w.In {
		if int(c.retries) < g.s.Retries {
			a.In[i] = w.In[i].Retain()
		} else {
			a.In[i] = w.In[i].Move()
		}
	}
	if w.Affinity != nil {
		a.Affinity = &a.affinity
		if at, bound := w.Bound(); bound {
			a.affinity.Bind(at)
		}
	}
	if w.Traced != nil {
		a.traced = *w.Traced
		a.traced.Trace, a.Traced = w.Traced.Trace.Hold(), &a.traced
	}
	if g.s.Timeout > 0 {
		g.bound(a)
	}
	return a
}

// bound starts the timeout of an attempt.
func (g *Scheduler) bound(a *attempt) {
	a.meta.Params = slices.Clone(a.meta.Params)
	a.Ctx, a.cancel = context.WithCancel(a.Ctx)
	a.timer = time.AfterFunc(g.s.Timeout, func() { g.expire(a) })
}

// expire abandons an attempt whose time is over, unless it is done.
func (g *Scheduler) expire(a *attempt) {
	if !a.abandoned.CompareAndSwap(false, true) {
		return
	}
	a.cancel()
	t := scheduler.NewRunLoop(g.s.Workers)
	var done, rest scheduler.TaskList
	err := status.Reasonf(status.StepTimeout, "step '%s' took longer than its timeout of %s", g.s.Step, g.s.Timeout)
	g.breaker.record(t.Now(), failed, a.probe, err.Error())
	g.event(a.call.task, t.Now(), "an attempt of '"+g.s.Step+"' took longer than its timeout of "+g.s.Timeout.String())
	if gone := a.call.task.Expired(t.Now()); gone != nil {
		err = gone
	}
	g.again(a.call, err, &done, &rest, t)
	g.finish(done, rest, t)
	t.Dispatch()
	t.Finish()
}

// Complete implements scheduler.Completer for the inner scheduler.
func (g *Scheduler) Complete(list scheduler.TaskList, t *scheduler.RunLoop) {
	var done, rest scheduler.TaskList
	sealed := list.Sealed()
	for w := list.Pop(); w != nil; w = list.Pop() {
		a := w.Run.(*attempt) //nolint:errcheck,forcetypeassert // set by attempt
		if !a.abandoned.CompareAndSwap(false, true) {
			tensor.ReleaseAll(a.Out)
		} else {
			g.completed(a, &done, &rest, t)
		}
		if a.Traced != nil {
			a.traced.Trace.End()
		}
		if g.s.Timeout > 0 {
			g.s.Workers.Reserve(-1)
		}
	}
	if sealed && rest.Len() == 0 {
		done.Seal()
	}
	g.finish(done, rest, t)
}

// completed ends an attempt in time.
func (g *Scheduler) completed(a *attempt, done, rest *scheduler.TaskList, t *scheduler.RunLoop) {
	if a.timer != nil {
		a.timer.Stop()
		a.cancel()
	}
	w := a.call.task
	o, why := worked, ""
	switch {
	case a.Err == nil:
	case Counts(a.Err):
		o, why = failed, status.Line(a.Err.Error())
	case status.CodeOf(a.Err) == status.Cancelled:
		o = neither
	}
	g.breaker.record(t.Now(), o, a.probe, why)
	out := w.Out
	w.TaskResult, w.Enqueued = a.TaskResult, a.Enqueued
	w.Out = out
	for i := range a.Out {
		out[i] = a.Out[i].Move()
	}
	if at, bound := a.affinity.Bound(); bound && w.Affinity != nil {
		w.Affinity.Bind(at)
	}
	if w.Traced != nil {
		w.Traced.Execution, w.Traced.Spilled = a.traced.Execution, a.traced.Spilled
	}
	if a.Err != nil {
		g.again(a.call, a.Err, done, rest, t)
		return
	}
	tensor.ReleaseAll(w.In)
	w.Retries = a.call.retries
	done.Push(w)
}

// again repeats a failed attempt, or fails its call.
func (g *Scheduler) again(c *call, err error, done, rest *scheduler.TaskList, t *scheduler.RunLoop) {
	if int(c.retries) == g.s.Retries || !Retryable(err) || c.task.Expired(t.Now()) != nil {
		g.fail(c, err, done)
		return
	}
	probe, refused := g.breaker.allow(t.Now())
	if refused != nil {
		g.event(c.task, t.Now(), refused.Error())
		g.fail(c, err, done)
		return
	}
	c.retries++
	g.event(c.task, t.Now(), fmt.Sprintf("'%s' failed, retry %d of %d: %s", g.s.Step, c.retries, g.s.Retries, status.Line(err.Error())))
	rest.Push(&g.attempt(c, probe).Task)
}

// fail completes a call with an error.
func (*Scheduler) fail(c *call, err error, done *scheduler.TaskList) {
	w := c.task
	tensor.ReleaseAll(w.In)
	w.Err, w.Retries = err, c.retries
	done.Push(w)
}

func (*Scheduler) event(w *scheduler.Task, now int64, reason string) {
	if trace := w.Trace(); trace != nil {
		trace.Event(&tracing.Event{Kind: tracing.EventFault, At: now, Node: w.Step, Reason: reason})
	}
}

// Account implements scheduler.Accounts: that of the task's sender. The sums of a request that may end before the attempt are not counted.
func (g *Scheduler) Account(run any, node int32) (*telemetry.Step, *telemetry.RunSums) {
	a := run.(*attempt) //nolint:errcheck,forcetypeassert // set by attempt
	to, ok := a.to.(scheduler.Accounts)
	if !ok {
		return nil, nil
	}
	step, sums := to.Account(a.of, node)
	if g.s.Timeout > 0 {
		sums = nil
	}
	return step, sums
}

// Help enqueues the attempts of one list at the inner scheduler.
func (g *Scheduler) Help(t *scheduler.RunLoop) bool {
	g.mu.Lock()
	if len(g.queue) == 0 {
		g.mu.Unlock()
		return false
	}
	list := g.queue[0]
	g.queue = slices.Delete(g.queue, 0, 1)
	g.mu.Unlock()
	g.s.Inner.Enqueue(list, t)
	return true
}

// Flush flushes the inner scheduler.
func (g *Scheduler) Flush() { scheduler.Flush(g.s.Inner) }

// InFlight returns how many tasks are not completed. Abandoned attempts do not count.
func (g *Scheduler) InFlight() int64 { return g.pending.Now() }

// Drain waits until every task is completed. The owner of the inner scheduler drains that, with the abandoned attempts.
func (g *Scheduler) Drain(ctx context.Context) error { return g.pending.Wait(ctx) }

// Close does nothing: the owner closes the inner scheduler.
func (*Scheduler) Close() error { return nil }

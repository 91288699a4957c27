// Package evictable is the scheduler of a model that may leave its device for another one, and come back. It passes tasks to
// the scheduler of the loaded model, and holds them while the model is not loaded.
//
// For example, a model is evicted and loaded again while two tasks wait:
//
//	inner := s.Suspend()       // from now on tasks are held; the first one calls Settings.Wanted
//	inner.Drain(ctx)           // those that were accepted before
//	inner.Close()
//	s.Resume(load())           // the held tasks go to the new scheduler, in order of arrival
package evictable

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/pending"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/batch"
	"github.com/tutti-server/tutti/scheduler/deadline"
)

// Settings are the parameters of New.
type Settings struct {
	// Inner is the scheduler of the loaded model. Its owner drains and closes it.
	Inner scheduler.Scheduler
	// Wanted is called for each task that is held, with the context of its request. It must not block.
	Wanted  func(ctx context.Context)
	Stats   *telemetry.Model
	Workers *scheduler.Workers

	_ struct{}
}

// Scheduler implements scheduler.Scheduler and scheduler.Flusher. Suspend, Resume and Fail are called by one owner, one at a time.
type Scheduler struct {
	s        Settings
	inner    atomic.Pointer[scheduler.Scheduler] // nil while suspended
	entering pending.Count                       // calls of Enqueue that may use inner
	used     atomic.Int64                        // last Enqueue, on the clock of telemetry.Now
	flush    atomic.Bool
	pending  pending.Count // held tasks that are not completed or passed on

	mu   sync.Mutex
	held []*held // in order of arrival, guarded by mu
}

// held is a task that waits for its model, with what removes it when its request ends before.
type held struct {
	task  *scheduler.Task
	ctx   func() bool
	timer *time.Timer // nil without a deadline
}

func (h *held) stop() {
	h.ctx()
	if h.timer != nil {
		h.timer.Stop()
	}
}

// New returns a scheduler that passes tasks to s.Inner.
func New(s Settings) *Scheduler {
	e := &Scheduler{s: s}
	e.inner.Store(&s.Inner)
	e.used.Store(telemetry.Now())
	return e
}

// Load implements scheduler.Measurable.
func (e *Scheduler) Load() (l scheduler.Load) {
	e.entering.Add(1)
	defer e.entering.Add(-1)
	if inner := e.inner.Load(); inner != nil {
		return scheduler.LoadOf(*inner)
	}
	return l
}

// Forecast implements scheduler.Forecaster; nothing is known while the model is not in memory.
func (e *Scheduler) Forecast(now, due int64, of *infer.Client) (s deadline.Stage, ok bool) {
	e.entering.Add(1)
	defer e.entering.Add(-1)
	if inner := e.inner.Load(); inner != nil {
		return scheduler.ForecastOf(*inner, now, due, of)
	}
	return s, false
}

// Enqueue implements scheduler.Scheduler.
//
// hot: two atomic adds, a load and a store more than the inner scheduler.
func (e *Scheduler) Enqueue(list scheduler.TaskList, t *scheduler.RunLoop) {
	for {
		e.entering.Add(1)
		inner := e.inner.Load()
		if inner != nil {
			e.used.Store(t.Now())
			(*inner).Enqueue(list, t)
		}
		e.entering.Add(-1)
		if inner != nil || e.hold(&list, t.Now()) {
			return
		}
	}
}

// hold keeps the tasks until Resume or Fail. It returns false if the scheduler has been resumed.
func (e *Scheduler) hold(list *scheduler.TaskList, now int64) bool {
	var contexts []context.Context
	e.mu.Lock()
	if e.inner.Load() != nil {
		e.mu.Unlock()
		return false
	}
	list.Stamp(now)
	n := list.Len()
	e.pending.Add(n)
	e.s.Stats.Queued(int64(n))
	for w := list.Pop(); w != nil; w = list.Pop() {
		contexts = append(contexts, w.Ctx)
		e.held = append(e.held, e.watch(w, now))
	}
	e.mu.Unlock()
	for _, ctx := range contexts {
		e.s.Wanted(ctx)
	}
	return true
}

// watch returns a held task that is removed when its client disconnects, or its deadline has passed. Called with mu held.
func (e *Scheduler) watch(w *scheduler.Task, now int64) *held {
	h := &held{task: w}
	h.ctx = context.AfterFunc(w.Ctx, func() { e.expire(h) })
	if d := w.Meta.Deadline; d > 0 {
		h.timer = time.AfterFunc(time.Duration(d-now), func() { e.expire(h) })
	}
	return h
}

// expire completes a held task whose request has ended, unless the task is held no longer.
func (e *Scheduler) expire(h *held) {
	e.mu.Lock()
	i := slices.Index(e.held, h)
	if i >= 0 {
		e.held = slices.Delete(e.held, i, i+1)
	}
	e.mu.Unlock()
	if i < 0 {
		return
	}
	h.stop()
	var list scheduler.TaskList
	now := telemetry.Now()
	if h.task.Err = h.task.Expired(now); h.task.Err == nil {
		h.task.Err = status.ErrDeadline // timers may be early by a fraction of a microsecond
	}
	list.Push(h.task)
	e.complete(list, now)
}

// complete ends tasks with their errors.
func (e *Scheduler) complete(list scheduler.TaskList, now int64) {
	n := list.Len()
	for w := list.Head; w != nil; w = w.Next() {
		tensor.ReleaseAll(w.In)
		waited(w, now)
		if w.Refusal = batch.RefusalOf(w.Err); status.CodeOf(w.Err) != status.Cancelled {
			w.Refusal = telemetry.NotServing
		}
		e.s.Stats.Refused(w.Refusal, now-w.Enqueued)
	}
	e.s.Stats.Queued(-int64(n))
	t := scheduler.NewRunLoop(e.s.Workers)
	scheduler.Complete(list, t)
	e.pending.Add(-n)
	t.Dispatch()
	t.Finish()
}

// waited records in its trace how long a task was held.
func waited(w *scheduler.Task, now int64) {
	w.Trace().Event(&tracing.Event{Kind: tracing.EventLoad, At: w.Enqueued, Duration: now - w.Enqueued, Node: w.Step})
}

// takeHeld removes all held tasks. Called with mu held.
func (e *Scheduler) takeHeld() (list scheduler.TaskList) {
	for _, h := range e.held {
		h.stop()
		list.Push(h.task)
	}
	e.held = nil
	return list
}

// Suspend holds tasks from now on. It returns the inner scheduler, which may still have tasks; nil if it was suspended already.
func (e *Scheduler) Suspend() scheduler.Scheduler {
	inner := e.inner.Swap(nil)
	if inner == nil {
		return nil
	}
	_ = e.entering.Wait(context.Background()) // they do not block
	return *inner
}

// Resume passes the held tasks, and those to come, to inner.
func (e *Scheduler) Resume(inner scheduler.Scheduler) {
	t := scheduler.NewRunLoop(e.s.Workers)
	if e.flush.Load() {
		scheduler.Flush(inner)
	}
	e.mu.Lock()
	list, now := e.takeHeld(), telemetry.Now()
	n := list.Len()
	for w := list.Head; w != nil; w = w.Next() {
		waited(w, now)
	}
	e.used.Store(now)
	e.s.Stats.Queued(-int64(n))
	if n > 0 { // before those that arrive now
		inner.Enqueue(list, t)
	}
	e.inner.Store(&inner)
	e.mu.Unlock()
	e.pending.Add(-n)
	t.Finish()
}

// Fail completes the held tasks with err.
func (e *Scheduler) Fail(err error) {
	e.mu.Lock()
	list := e.takeHeld()
	e.mu.Unlock()
	for w := list.Head; w != nil; w = w.Next() {
		w.Err = err
	}
	if list.Len() > 0 {
		e.complete(list, telemetry.Now())
	}
}

// Held returns how many tasks wait for the model.
func (e *Scheduler) Held() int64 { return e.pending.Now() }

// Used returns when a task last reached the loaded model, or the model was loaded, on the clock of telemetry.Now.
func (e *Scheduler) Used() int64 { return e.used.Load() }

// Help returns false: the inner scheduler asks for help itself.
func (*Scheduler) Help(*scheduler.RunLoop) bool { return false }

// InFlight returns how many tasks are held, queued or executing.
func (e *Scheduler) InFlight() int64 {
	e.entering.Add(1)
	defer e.entering.Add(-1)
	n := e.pending.Now()
	if inner := e.inner.Load(); inner != nil {
		n += (*inner).InFlight()
	}
	return n
}

// Drain waits until no task is held, queued or executing. Held tasks wait for Resume or Fail.
func (e *Scheduler) Drain(ctx context.Context) error {
	for {
		err := e.pending.Wait(ctx)
		if inner := e.inner.Load(); inner != nil {
			err = errors.Join(err, (*inner).Drain(ctx))
		}
		if err != nil || e.InFlight() == 0 {
			return err
		}
	}
}

// Flush flushes the inner scheduler, and those of later loads.
func (e *Scheduler) Flush() {
	e.flush.Store(true)
	e.entering.Add(1)
	defer e.entering.Add(-1)
	if inner := e.inner.Load(); inner != nil {
		scheduler.Flush(*inner)
	}
}

// Close does nothing: the owner closes the inner scheduler.
func (*Scheduler) Close() error { return nil }

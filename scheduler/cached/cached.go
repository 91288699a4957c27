// Package cached puts a response cache in front of a model's scheduler. The lookup comes before the
// queue: a hit never waits for an instance. Identical tasks in flight execute once, by the rules of
// cache.Front; followers count as hits, and as queued while they wait.
//
// A cache in this process is read when a task is enqueued. A cache in another process is read by
// workers, several lookups at a time, so tasks may overtake each other.
//
// Only tensors on the host are hashed and stored: a task with an input at a device, or of a step that
// executes at one, skips the cache. For example, the classifier of an ensemble on GPU 0 skips it,
// while the same classifier, requested directly, has its outputs copied to the host and stored.
package cached

import (
	"context"
	"errors"
	"sync"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/cache"
	"github.com/tutti-server/tutti/internal/pending"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/batch"
	"github.com/tutti-server/tutti/scheduler/deadline"
)

// Settings are the parameters of New.
type Settings struct {
	// Inner computes the misses. It moves to the scheduler.
	Inner scheduler.Scheduler
	Cache cache.Cache
	// Identity distinguishes the loaded version from every other one.
	Identity cache.Key
	Stats    *telemetry.Model
	Workers  *scheduler.Workers
	// Mover is nil where there are no devices; with one the Signature is the model's.
	Mover     *batch.Mover
	Signature *config.Signature

	_ struct{}
}

// Scheduler completes tasks from a cache, and enqueues the others at another scheduler.
type Scheduler struct {
	inner   scheduler.Scheduler
	cache   cache.Cache
	stats   *telemetry.Model
	workers *scheduler.Workers
	mover   *batch.Mover
	sig     *config.Signature
	front   *cache.Front[*scheduler.Task]
	remote  bool
	calls   pool.Of[call]
	pending pending.Count // tasks not yet completed

	mu     sync.Mutex
	queue  scheduler.TaskList // tasks to look up in a remote cache, guarded by mu
	closed bool               // guarded by mu
}

// call is a task that the inner scheduler computes: its completer, and how its response is stored.
type call struct {
	to      scheduler.Completer
	run     any
	key     cache.Key
	keep    bool // the response goes to the cache
	leads   bool
	took    int64 // ns of the lookup
	waiting []*scheduler.Task
}

// lookups is how many workers look up in a remote cache at a time for a model, besides callers.
const lookups = 4

// New returns a scheduler that looks in s.Cache first.
func New(s Settings) *Scheduler {
	c := &Scheduler{
		inner: s.Inner, cache: s.Cache, stats: s.Stats, workers: s.Workers, mover: s.Mover, sig: s.Signature,
		remote: s.Cache.Remote(),
	}
	c.front = cache.NewFront(cache.FrontSettings[*scheduler.Task]{
		Cache: s.Cache, Identity: s.Identity, Stats: s.Stats, Cancel: c.cancelAll,
		Context: func(w *scheduler.Task) context.Context { return w.Ctx },
		Meta:    func(w *scheduler.Task) *infer.Meta { return w.Meta },
		Missed: func(w *scheduler.Task, now int64) {
			w.Trace().Event(&tracing.Event{Kind: tracing.EventCacheMiss, At: now, Node: w.Step})
		},
	})
	if c.remote {
		c.workers.Reserve(lookups)
	}
	return c
}

// Enqueue implements scheduler.Scheduler: the tasks are looked up next.
//
// hot: no lock with a cache in this process.
func (c *Scheduler) Enqueue(list scheduler.TaskList, t *scheduler.RunLoop) {
	now := t.Now()
	list.Stamp(now)
	c.pending.Add(list.Len())
	if !c.remote {
		t.Inline(c, list)
		return
	}
	c.mu.Lock()
	for w := list.Pop(); w != nil; w = list.Pop() {
		c.queue.Push(w)
	}
	c.mu.Unlock()
	t.Ready(c)
}

// Load implements scheduler.Measurable.
func (c *Scheduler) Load() scheduler.Load { return scheduler.LoadOf(c.inner) }

// Forecast implements scheduler.Forecaster: a response may be in the cache, but need not be.
func (c *Scheduler) Forecast(now, due int64, of *infer.Client) (deadline.Stage, bool) {
	return scheduler.ForecastOf(c.inner, now, due, of)
}

// RunInline looks the tasks up, completes the hits and enqueues the others.
//
// hot: no allocation in the steady state.
func (c *Scheduler) RunInline(list scheduler.TaskList, t *scheduler.RunLoop) {
	var found, rest scheduler.TaskList
	for w := list.Pop(); w != nil; w = list.Pop() {
		c.lookUp(w, &found, &rest, t)
	}
	c.finish(found, rest, t)
}

// Help looks up one task in a remote cache.
func (c *Scheduler) Help(t *scheduler.RunLoop) bool {
	c.mu.Lock()
	w, more := c.queue.Pop(), c.queue.Len() > 0
	c.mu.Unlock()
	if w == nil {
		return false
	}
	if more {
		c.workers.Go(c)
	}
	var found, rest scheduler.TaskList
	c.lookUp(w, &found, &rest, t)
	c.finish(found, rest, t)
	return true
}

// finish completes tasks and enqueues others at the inner scheduler.
func (c *Scheduler) finish(done, rest scheduler.TaskList, t *scheduler.RunLoop) {
	if rest.Len() > 0 {
		c.inner.Enqueue(rest, t)
	}
	if n := done.Len(); n > 0 {
		scheduler.Complete(done, t)
		c.pending.Add(-n)
	}
}

// lookUp looks up one task, which then is in found, in rest, or follows another.
func (c *Scheduler) lookUp(w *scheduler.Task, found, rest *scheduler.TaskList, t *scheduler.RunLoop) {
	x := c.calls.Get()
	// The inner scheduler cancels tasks of disconnected clients.
	if w.Want == scheduler.AtDevice || !cache.Cacheable(w.In) || w.Ctx.Err() != nil {
		x.keep, x.leads, x.took = false, false, 0
		c.forward(w, x, rest)
		return
	}
	w.Outputs = nil // the entry serves requests for other outputs, too
	x.key = c.key(w)
	at := c.front.Find(w, &x.key, w.Out)
	t.Tick(at.Now)
	x.keep, x.leads, x.took = true, at.Role == cache.Lead, at.Took
	switch {
	case at.Hit:
		c.respond(w, at.Now, x.took)
		found.Push(w)
		if x.leads {
			x.waiting = c.front.End(&x.key, x.waiting[:0])
			c.serve(w, x, true, at.Now, found, rest)
		}
		c.recycle(x)
	case at.Role == cache.Follow: // it belongs to the leader now
		c.recycle(x)
	default:
		c.forward(w, x, rest)
	}
}

func (c *Scheduler) recycle(x *call) {
	clear(x.waiting)
	x.to, x.run, x.waiting = nil, nil, x.waiting[:0]
	c.calls.Put(x)
}

func (c *Scheduler) key(w *scheduler.Task) cache.Key {
	h := c.front.Get()
	defer c.front.Put(h)
	h.Meta(w.Meta)
	for i := range w.In {
		h.Tensor(&w.In[i])
	}
	return h.Key()
}

// respond ends a task whose outputs are in the cache.
func (c *Scheduler) respond(w *scheduler.Task, now, took int64) {
	tensor.ReleaseAll(w.In)
	w.Err, w.Cached = nil, true
	w.Times = telemetry.Times{Start: now, InputEnd: now, InferEnd: now, End: now}
	c.stats.Hit(w.Enqueued, now, took)
	w.Enqueued = now // it was not queued
}

// forward adds a task to rest, with c as its completer.
func (c *Scheduler) forward(w *scheduler.Task, x *call, rest *scheduler.TaskList) {
	x.to, x.run, w.To, w.Run = w.To, w.Run, c, x
	rest.Push(w)
}

// Account implements scheduler.Accounts: that of the task's sender.
func (*Scheduler) Account(run any, node int32) (*telemetry.Step, *telemetry.RunSums) {
	x := run.(*call) //nolint:errcheck,forcetypeassert // set by forward
	if to, ok := x.to.(scheduler.Accounts); ok {
		return to.Account(x.run, node)
	}
	return nil, nil
}

// Complete implements scheduler.Completer for the inner scheduler: it stores responses and serves the followers.
//
// hot: no allocation in the steady state.
func (c *Scheduler) Complete(list scheduler.TaskList, t *scheduler.RunLoop) {
	var done, rest scheduler.TaskList
	for w := list.Pop(); w != nil; w = list.Pop() {
		x := w.Run.(*call) //nolint:errcheck,forcetypeassert // set by forward
		w.To, w.Run = x.to, x.run
		done.Push(w)
		began := telemetry.Now()
		ok := w.Err == nil && x.keep && len(w.ResponseParams) == 0 && c.copyToHost(w) && cache.Cacheable(w.Out)
		x.waiting = c.front.Computed(&x.key, w.Out, cache.Computed{
			Store: ok, Succeeded: w.Err == nil && x.keep, Leads: x.leads, Began: began, Took: x.took,
		}, x.waiting[:0])
		c.serve(w, x, ok, telemetry.Now(), &done, &rest)
		c.recycle(x)
	}
	c.finish(done, rest, t)
}

// copyToHost copies the outputs of a task that is a whole request to the host, where its client needs
// them, before they are stored. It reports success; a failure is reported by the task's completer.
//
// hot: one load while there is no device.
func (c *Scheduler) copyToHost(w *scheduler.Task) bool {
	if c.mover.Idle() || w.Want != scheduler.Anywhere {
		return true
	}
	for i := range w.Out {
		note := batch.Note{Ledger: &c.stats.Copies, Tensor: c.sig.Outputs[i].Name, Reason: telemetry.ForResponse}
		if c.mover.ToHost(&w.Out[i], note) != nil {
			return false
		}
	}
	for i := range w.Out {
		if batch.WaitOnHost(&w.Out[i]) != nil {
			return false
		}
	}
	return true
}

// serve ends the followers of a task: with its outputs when ok is set. Else they are computed.
func (c *Scheduler) serve(w *scheduler.Task, x *call, ok bool, now int64, done, rest *scheduler.TaskList) {
	for _, f := range x.waiting {
		switch {
		case f.Ctx.Err() != nil:
			c.cancel(f, now)
			done.Push(f)
		case ok:
			for i := range w.Out {
				f.Out[i] = w.Out[i].Retain()
			}
			c.respond(f, now, 0)
			done.Push(f)
		default:
			if role := c.front.Retry(&x.key, f, w.Err); role != cache.Follow {
				next := c.calls.Get()
				next.key, next.keep, next.leads, next.took = x.key, true, role == cache.Lead, 0
				c.forward(f, next, rest)
			}
		}
	}
}

// cancel ends a follower whose client has disconnected.
func (c *Scheduler) cancel(w *scheduler.Task, now int64) {
	if w.Err = w.Expired(now); w.Err == nil {
		w.Err = status.ErrCancelled
	}
	tensor.ReleaseAll(w.In)
	c.stats.Failed(telemetry.Canceled, now-w.Enqueued)
}

// cancelAll ends followers whose clients have disconnected.
func (c *Scheduler) cancelAll(list []*scheduler.Task) {
	var done scheduler.TaskList
	now := telemetry.Now()
	for _, w := range list {
		c.cancel(w, now)
		done.Push(w)
	}
	t := scheduler.NewRunLoop(c.workers)
	c.finish(done, scheduler.TaskList{}, t)
	t.Dispatch()
	t.Finish()
}

// Flush flushes the inner scheduler.
func (c *Scheduler) Flush() { scheduler.Flush(c.inner) }

// InFlight returns how many tasks are not completed yet.
func (c *Scheduler) InFlight() int64 { return c.pending.Now() }

// Drain waits until every task is completed.
func (c *Scheduler) Drain(ctx context.Context) error {
	return errors.Join(c.pending.Wait(ctx), c.inner.Drain(ctx))
}

// Close closes the inner scheduler.
func (c *Scheduler) Close() error {
	c.mu.Lock()
	first := !c.closed
	c.closed = true
	c.mu.Unlock()
	c.front.Close()
	if first && c.remote {
		c.workers.Reserve(-lookups)
	}
	return c.inner.Close()
}

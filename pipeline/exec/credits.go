package exec

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/scheduler"
)

// sweepInterval is how long a request of a disconnected client may wait unnoticed for a credit.
const sweepInterval = 100 * time.Millisecond

// credits bounds how many requests a step has at a time (max_inflight_requests). A task without a credit waits here in
// order of arrival and holds no goroutine. A task with a credit executes and releases it. It waits only for later
// steps, whose credits are released first, so every task gets one.
type credits struct {
	x       *Executor
	node    int32
	workers *scheduler.Workers

	mu       sync.Mutex
	free     int64              // guarded by mu
	waiting  scheduler.TaskList // guarded by mu
	timer    *time.Timer        // guarded by mu
	sweeping bool               // the timer is running, guarded by mu
}

// newCredits returns the credits of each node of x: nil for a node without a limit, and nil when no node has one.
func newCredits(x *Executor, workers *scheduler.Workers) []*credits {
	var list []*credits
	for i := range x.plan.Nodes {
		if n := x.plan.Nodes[i].MaxInflight; n > 0 {
			if list == nil {
				list = make([]*credits, len(x.plan.Nodes))
			}
			list[i] = &credits{x: x, node: int32(i), workers: workers, free: int64(n)}
		}
	}
	return list
}

// acquire takes a credit for a task, or queues the task and returns false.
func (c *credits) acquire(task *scheduler.Task) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.free > 0 {
		c.free--
		return true
	}
	c.waiting.Push(task)
	c.sweepLater()
	return false
}

// release returns a credit: the next task is staged with it, and without one it is free.
func (c *credits) release(loop *scheduler.RunLoop) {
	if c == nil {
		return
	}
	for {
		c.mu.Lock()
		w := c.waiting.Pop()
		if w == nil {
			c.free++
		}
		c.mu.Unlock()
		if w == nil {
			return
		}
		r := w.Run.(*run) //nolint:errcheck,forcetypeassert // set by newRun
		if r.ctx.Err() == nil && r.root.failure.Load() == nil {
			loop.Stage(c.x.targets[c.node], w)
			return
		}
		r.cancelTask(w, loop)
	}
}

// sweepLater starts the timer that looks for cancelled tasks; mu is held.
func (c *credits) sweepLater() {
	switch {
	case c.sweeping:
		return
	case c.timer == nil:
		c.timer = time.AfterFunc(sweepInterval, c.sweep)
	default:
		c.timer.Reset(sweepInterval)
	}
	c.sweeping = true
}

// sweep ends the waiting tasks of clients that have disconnected.
func (c *credits) sweep() {
	var dead scheduler.TaskList
	c.mu.Lock()
	c.sweeping = false
	for range c.waiting.Len() {
		w := c.waiting.Pop()
		r := w.Run.(*run) //nolint:errcheck,forcetypeassert // set by newRun
		if r.ctx.Err() != nil || r.root.failure.Load() != nil {
			dead.Push(w)
		} else {
			c.waiting.Push(w)
		}
	}
	if c.waiting.Len() > 0 {
		c.sweepLater()
	}
	c.mu.Unlock()
	t := scheduler.NewRunLoop(c.workers)
	for w := dead.Pop(); w != nil; w = dead.Pop() {
		w.Run.(*run).cancelTask(w, t) //nolint:errcheck,forcetypeassert // set by newRun
	}
	t.Dispatch()
	t.Finish()
}

// cancelTask ends a task that never got its credit.
func (r *run) cancelTask(task *scheduler.Task, loop *scheduler.RunLoop) {
	tensor.ReleaseAll(task.In)
	r.fail(task.Node, cancelError(r.ctx))
	r.taskDone(0, loop)
}

// gone returns the error of a request whose client has disconnected, or whose deadline has passed.
func cancelError(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return status.ErrDeadline
	}
	return status.ErrCancelled
}

// pace waits until the client can take another response.
func (r *run) pace(task *scheduler.Task) error {
	if r.ctx.Err() != nil || r.root.failure.Load() != nil {
		return status.ErrCancelled
	}
	p, ok := r.root.sink.(infer.Pacer)
	if !ok {
		return nil
	}
	if p.Full() {
		task.Pause()
		defer task.Resume()
	}
	if p.Pace(r.ctx) != nil {
		return status.ErrCancelled
	}
	return nil
}

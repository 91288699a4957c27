package exec

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/scheduler"
)

// sweepEvery is how long a request whose client has gone may wait unnoticed: for a
// credit, or for the answer of another.
const sweepEvery = 100 * time.Millisecond

// credits bounds how many requests a step has at a time. A work without a credit
// waits here, in order of arrival, and holds no goroutine. What has a credit
// executes and gives it back; if it waits it is for steps behind its own, whose credits
// come back first, so everyone gets one in time.
type credits struct {
	x       *Executor
	node    int32
	workers *scheduler.Workers

	mu      sync.Mutex
	free    int64              // guarded by mu
	waiting scheduler.TaskList // guarded by mu
	timer   *time.Timer        // guarded by mu
	swept   bool               // the timer is running, guarded by mu
}

// newInflight returns the credits of each node of x, nil for those without a limit
// and as a whole when there is none.
func newInflight(x *Executor, workers *scheduler.Workers) []*credits {
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

// take reports whether the work has got a credit; else the work waits here.
func (c *credits) take(w *scheduler.Task) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.free > 0 {
		c.free--
		return true
	}
	c.waiting.Push(w)
	c.sweepLater()
	return false
}

// give takes a credit back and stages the work that waits longest for it.
func (c *credits) give(t *scheduler.RunLoop) {
	if c == nil {
		return
	}
	for w := c.pass(); w != nil; w = c.pass() {
		r := w.Run.(*run) //nolint:errcheck,forcetypeassert // set by newRun
		if r.ctx.Err() == nil && r.root.failure.Load() == nil {
			t.Stage(c.x.targets[c.node], w)
			return
		}
		r.abandon(w, t)
	}
}

// pass returns the next work, to which the credit at hand passes; without one the
// credit is free.
func (c *credits) pass() *scheduler.Task {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.waiting.Pop()
	if w == nil {
		c.free++
	}
	return w
}

// sweepLater has somebody look for clients that have gone; mu is held.
func (c *credits) sweepLater() {
	switch {
	case c.swept:
		return
	case c.timer == nil:
		c.timer = time.AfterFunc(sweepEvery, c.sweep)
	default:
		c.timer.Reset(sweepEvery)
	}
	c.swept = true
}

// sweep ends the waiting works whose clients have gone.
func (c *credits) sweep() {
	t := scheduler.NewRunLoop(c.workers)
	for dead := c.dead(); dead.Len() > 0; {
		w := dead.Pop()
		w.Run.(*run).abandon(w, t) //nolint:errcheck,forcetypeassert // set by newRun
	}
	t.Dispatch()
	t.Leave()
}

// dead takes those works out of the queue.
func (c *credits) dead() (dead scheduler.TaskList) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.swept = false
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
	return dead
}

// abandon ends a work that never got its credit.
func (r *run) abandon(w *scheduler.Task, t *scheduler.RunLoop) {
	tensor.ReleaseAll(w.In)
	r.fail(w.Node, gone(r.ctx))
	r.leave(0, t)
}

// gone is how a request ends that nobody waits for any more.
func gone(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return status.ErrDeadline
	}
	return status.ErrCancelled
}

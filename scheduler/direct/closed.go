package direct

import (
	"context"

	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/batch"
)

// Closed is the scheduler of a model without an instance that takes requests.
type Closed struct {
	runner  *batch.Runner
	why     error
	pending scheduler.Pending
}

var (
	_ scheduler.Scheduler = (*Closed)(nil)
	_ scheduler.Inliner   = (*Closed)(nil)
)

// NewClosed returns a scheduler that fails every work with why.
func NewClosed(runner *batch.Runner, why error) *Closed {
	return &Closed{runner: runner, why: why}
}

// Enqueue gives the works to the turn, which has them turned away next.
func (c *Closed) Enqueue(list scheduler.TaskList, t *scheduler.RunLoop) {
	now := t.Now()
	for w := list.Head; w != nil; w = w.Next() {
		w.Enqueued = now
	}
	c.pending.Add(list.Len())
	t.Inline(c, list)
}

// RunInline completes the works with the error.
func (c *Closed) RunInline(list scheduler.TaskList, t *scheduler.RunLoop) {
	n := list.Len()
	c.runner.Reject(&list, c.why, t.Now())
	c.pending.Add(-n)
	scheduler.Complete(list, t)
}

// Help has nothing to help with: work never waits here.
func (*Closed) Help(*scheduler.RunLoop) bool { return false }

// InFlight returns how many works are queued or executing.
func (c *Closed) InFlight() int64 { return c.pending.Now() }

// Drain waits until nothing is being completed.
func (c *Closed) Drain(ctx context.Context) error { return c.pending.Wait(ctx) }

// Close has no instance to close.
func (*Closed) Close() error { return nil }

package direct

import (
	"context"

	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/batch"
)

// Closed is the scheduler of a model without active instances.
type Closed struct {
	runner  *batch.Runner
	why     error
	pending scheduler.Pending
}

var (
	_ scheduler.Scheduler = (*Closed)(nil)
	_ scheduler.Inliner   = (*Closed)(nil)
)

// NewClosed returns a scheduler that fails every task with why.
func NewClosed(runner *batch.Runner, why error) *Closed {
	return &Closed{runner: runner, why: why}
}

// Enqueue implements scheduler.Scheduler.
func (c *Closed) Enqueue(list scheduler.TaskList, t *scheduler.RunLoop) {
	now := t.Now()
	list.Stamp(now)
	c.pending.Add(list.Len())
	t.Inline(c, list)
}

// RunInline completes the tasks with the error.
func (c *Closed) RunInline(list scheduler.TaskList, t *scheduler.RunLoop) {
	n := list.Len()
	c.runner.Reject(&list, c.why, t.Now())
	c.pending.Add(-n)
	scheduler.Complete(list, t)
}

// Help returns false: no task is ever queued.
func (*Closed) Help(*scheduler.RunLoop) bool { return false }

// InFlight returns how many tasks are not completed yet.
func (c *Closed) InFlight() int64 { return c.pending.Now() }

// Drain waits until every task is completed.
func (c *Closed) Drain(ctx context.Context) error { return c.pending.Wait(ctx) }

// Close does nothing.
func (*Closed) Close() error { return nil }

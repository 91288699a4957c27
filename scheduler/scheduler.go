package scheduler

import (
	"context"
	"time"
)

// Scheduler stands in front of one model version.
type Scheduler interface {
	// Enqueue moves the works of list to the scheduler. It never executes and never
	// blocks; when something may be ready now, it says so to t.
	Enqueue(list TaskList, t *RunLoop)
	// Help lends the calling goroutine for one batch. false: nothing was ready.
	Help(t *RunLoop) bool
	// InFlight returns how many works are queued or executing.
	InFlight() int64
	// Drain returns when no work is queued or executing, or with ctx's error. Work
	// enqueued meanwhile is waited for too.
	Drain(ctx context.Context) error
	// Close closes the instances; the scheduler is drained before. Safe to call twice.
	Close() error
}

// Item is what a Policy sees of one queued work.
type Item struct {
	// Shape tells works apart that cannot share a batch: equal numbers can.
	Shape uint64
	// Length is the extent of the padded dimension, 0 when nothing is padded.
	Length int32
	Rows   int32
	// Elements are those of all inputs.
	Elements int64
	Enqueued int64
}

// View is what a Policy decides on.
type View struct {
	// Items are the first queued works of one shape, in order of service; at least one.
	Items []Item
	// More reports that more works of the shape are queued than Items.
	More bool
	// Instances is how many there are, Executing how many rows the busy ones hold.
	Instances, Executing int32
	// Queued is how many rows are queued, of any shape.
	Queued int32
	// Hurry says not to wait for more works.
	Flush bool
	// Closed says that a work which cannot join those of Items is queued behind them:
	// their batch must not wait for more.
	Closed bool
}

// Decision is what to do now.
type Decision struct {
	// Take holds the positions of the works that form the batch, ascending. Empty:
	// not yet.
	Take []int32
	// Wait is how long not to ask again unless work arrives; used when Take is empty.
	Wait time.Duration
}

// Policy forms batches. It is pure: the same view and clock give the same decision,
// apart from what it was told to learn.
type Policy interface {
	// Decide is called with a free instance at hand. scratch is memory for Take.
	Decide(now int64, v View, scratch []int32) Decision
}

// Executed tells what one execution cost.
type Executed struct {
	// Rows and Elements are those of all inputs together.
	Rows, Elements int64
	// Unpadded are the rows times their own lengths, Padding what was added to make
	// all rows as long as the longest; both are 0 where nothing is padded.
	Unpadded, Padding int64
	Duration          time.Duration
}

// Learner is a Policy that wants to know what executions cost.
type Learner interface {
	Policy
	Observe(x Executed)
}

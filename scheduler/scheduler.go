package scheduler

import (
	"context"
	"time"

	"github.com/tutti-server/tutti/backends"
)

// Scheduler decides when and with which others the tasks of one model version execute.
//
// Lifecycle:
//
//  1. Serving: Enqueue, Help and InFlight may be called, from any goroutine.
//  2. Draining: the owner sends no more tasks and calls Drain, which waits for the rest.
//  3. Closed: Close is called, once or more. Nothing else may follow.
//
// A sender lends its goroutine to execute what it enqueued:
//
//	t := scheduler.NewRunLoop(workers)
//	t.Stage(s, &task)      // collect tasks for s
//	t.Dispatch()           // s.Enqueue(list, t)
//	t.RunUntil(done)       // s.Help(t) until done() or nothing is ready
type Scheduler interface {
	// Enqueue moves the tasks to the scheduler. It must neither execute nor block. When a
	// batch may be ready now, it calls t.Ready or t.Inline.
	Enqueue(list TaskList, t *RunLoop)
	// Help executes at most one batch on the calling goroutine. It returns false when
	// nothing was ready.
	Help(t *RunLoop) bool
	// InFlight returns how many tasks are queued or executing.
	InFlight() int64
	// Drain blocks until no task is queued or executing, or returns ctx's error. Tasks that
	// are enqueued meanwhile are waited for, too.
	Drain(ctx context.Context) error
	// Close closes the instances.
	Close() error
}

// Flusher is a Scheduler whose batches may wait for more tasks.
type Flusher interface {
	// Flush executes queued tasks now and later ones at once, instead of waiting for fuller
	// batches. It is called when the model is about to be unloaded.
	Flush()
}

// Flush calls s.Flush if s is a Flusher.
func Flush(s Scheduler) {
	if f, ok := s.(Flusher); ok {
		f.Flush()
	}
}

// Resizable is a Scheduler whose instances may change while it serves. Add and Remove may be
// called concurrently with everything but Close.
//
// For example, to replace an instance without refusing a request:
//
//	s.Add([]backends.Instance{fresh}, nil)
//	s.Remove(old, func() { close(removed) })
//	<-removed
//	err := old.Close()
type Resizable interface {
	Scheduler
	// Add adds instances, which move to the scheduler. limiters are those of the same
	// positions; nil, or a nil element, for none.
	Add(instances []backends.Instance, limiters []Limiter)
	// Remove takes one instance out and moves it back to the caller with the call of gone:
	// when its batch is done, and in a model of sequences when the last sequence in its
	// slots has ended. At least one other instance must be left. gone is called once; it must
	// neither block nor call the scheduler.
	Remove(inst backends.Instance, gone func())
}

// Item is what a Policy sees of one queued task.
type Item struct {
	// Shape is equal for tasks that may share a batch.
	Shape uint64
	// Length is the extent of the padded dimension, 0 when nothing is padded.
	Length int32
	Rows   int32
	// Elements is the size of all inputs.
	Elements int64
	Enqueued int64
}

// View is what a Policy decides on.
type View struct {
	// Items are the first queued tasks of one shape, in order of service; at least one.
	Items []Item
	// More reports that more tasks of the shape are queued than Items.
	More bool
	// Instances is the number of instances, Executing the number of rows that the busy ones
	// hold.
	Instances, Executing int32
	// Queued is how many rows are queued, of any shape.
	Queued int32
	// Flush forbids to wait for more tasks.
	Flush bool
	// Closed reports that a task which cannot join those of Items is queued behind them:
	// their batch must not wait for more.
	Closed bool
}

// Decision is what a Policy decides.
type Decision struct {
	// Take holds the positions of the items that form the batch, ascending. Empty means: not
	// yet.
	Take []int32
	// Wait is when to ask again unless another task arrives before. Used when Take is empty.
	Wait time.Duration
}

// Policy forms batches. The queue calls it with its lock held, so one call at a time; it must
// not block. It must be pure: equal views and times give equal decisions, but for what a
// Learner has observed.
//
// For example, a policy of at most four requests:
//
//	func (four) Decide(_ int64, v scheduler.View, scratch []int32) scheduler.Decision {
//		for i := range v.Items[:min(4, len(v.Items))] {
//			scratch = append(scratch, int32(i))
//		}
//		return scheduler.Decision{Take: scratch}
//	}
type Policy interface {
	// Decide is called when an instance is free. scratch is memory for Take.
	Decide(now int64, v View, scratch []int32) Decision
}

// Executed is the cost of one execution.
type Executed struct {
	// Rows and Elements are the sums over the batch's tasks.
	Rows, Elements int64
	// Unpadded is the sum of each row's own length, Padding the elements that were added to make all rows
	// as long as the longest. For example, lengths 3 and 5: 8 and 2. Both are 0 where
	// nothing is padded.
	Unpadded, Padding int64
	Duration          time.Duration
}

// Learner is a Policy that learns from what executions cost.
type Learner interface {
	Policy
	// Observe is called after an execution that succeeded, under the same lock as Decide.
	Observe(x Executed)
}

// Package direct schedules models that do not batch across requests: each request is one execution. Tasks of an inline
// model execute on the goroutine of the step before; others wait in order of arrival for a free instance. For example,
// a tokenizer in Go is inline, an ONNX model without dynamic_batching is not.
package direct

import (
	"context"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/batch"
	"github.com/tutti-server/tutti/scheduler/queue"
)

// Settings are the parameters of New and NewInline.
type Settings struct {
	Runner *batch.Runner
	// Instances move to the scheduler. NewInline uses one.
	Instances []backends.Instance
	// Gates are the limiters of the instances, nil for none. NewInline uses none.
	Limiters []scheduler.Limiter
	// Shared says that any number of goroutines may use an instance.
	Shared  bool
	Workers *scheduler.Workers

	_ struct{}
}

// New returns a scheduler that executes requests one by one, as many at a time as there are instances.
func New(s Settings) scheduler.Scheduler {
	return queue.New(queue.Settings{
		Runner: s.Runner, Policy: oldest{}, Instances: s.Instances, Limiters: s.Limiters, Shared: s.Shared, Workers: s.Workers,
	})
}

// oldest is a policy of one request at a time.
type oldest struct{}

// Decide takes the oldest task.
func (oldest) Decide(_ int64, _ scheduler.View, scratch []int32) scheduler.Decision {
	return scheduler.Decision{Take: append(scratch, 0)}
}

// Inline executes tasks on the goroutine that enqueues them.
type Inline struct {
	runner  *batch.Runner
	inst    backends.Instance
	pending scheduler.Pending
}

var (
	_ scheduler.Scheduler = (*Inline)(nil)
	_ scheduler.Inliner   = (*Inline)(nil)
)

// NewInline returns a scheduler over one instance of a concurrent model.
func NewInline(s Settings) *Inline {
	return &Inline{runner: s.Runner, inst: s.Instances[0]}
}

// Enqueue implements scheduler.Scheduler: the tasks execute next.
//
// hot: no lock.
func (i *Inline) Enqueue(list scheduler.TaskList, t *scheduler.RunLoop) {
	now := t.Now()
	list.Stamp(now)
	i.pending.Add(list.Len())
	t.Inline(i, list)
}

// RunInline executes the tasks and completes them together. A sealed list that the model can take
// executes as one batch, others task by task.
func (i *Inline) RunInline(list scheduler.TaskList, t *scheduler.RunLoop) {
	n := list.Len()
	if !i.runner.RunSealed(i.inst, &list, t) {
		list = i.runEach(list, t)
	}
	i.pending.Add(-n)
	scheduler.Complete(list, t)
}

// runEach executes every task as a batch of one, and keeps the seal of the list. It is not a method
// of batch.Runner: there, in a cycle of calls, the lists would escape to the heap.
func (i *Inline) runEach(list scheduler.TaskList, t *scheduler.RunLoop) (done scheduler.TaskList) {
	sealed := list.Sealed()
	for w := list.Pop(); w != nil; w = list.Pop() {
		var one scheduler.TaskList
		one.Push(w)
		if w.Expired(t.Now()) != nil {
			i.runner.Cancel(&one, t.Now())
		} else {
			i.runner.Run(i.inst, &one, t)
		}
		done.Push(w)
	}
	if sealed {
		done.Seal()
	}
	return done
}

// Help returns false: no task is ever queued.
func (*Inline) Help(*scheduler.RunLoop) bool { return false }

// InFlight returns how many tasks are executing.
func (i *Inline) InFlight() int64 { return i.pending.Now() }

// Drain waits until no task is executing.
func (i *Inline) Drain(ctx context.Context) error { return i.pending.Wait(ctx) }

// Close closes the instance.
func (i *Inline) Close() error { return i.inst.Close() }

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

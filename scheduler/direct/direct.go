// Package direct schedules models that do not batch across requests: each request is
// one execution. Work of an inline model runs where the previous step completed; any
// other waits in order of arrival for a free instance.
package direct

import (
	"context"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/batch"
	"github.com/tutti-server/tutti/scheduler/queue"
)

// Settings are what New and NewInline are given.
type Settings struct {
	Runner *batch.Runner
	// Instances move to the scheduler. NewInline uses one.
	Instances []backends.Instance
	// Gates are those of the instances, nil for none. NewInline uses none.
	Gates []scheduler.Limiter
	// Shared says that any number of goroutines may use an instance.
	Shared  bool
	Workers *scheduler.Workers

	_ struct{}
}

// New returns a scheduler that executes requests one by one, as many at a time as
// there are instances.
func New(s Settings) scheduler.Scheduler {
	return queue.New(queue.Settings{
		Runner: s.Runner, Policy: oldest{}, Instances: s.Instances, Limiters: s.Gates, Shared: s.Shared, Workers: s.Workers,
	})
}

// oldest is the policy of one request at a time.
type oldest struct{}

// Decide takes the oldest work.
func (oldest) Decide(_ int64, _ scheduler.View, scratch []int32) scheduler.Decision {
	return scheduler.Decision{Take: append(scratch, 0)}
}

// Inline runs work on the goroutine that brings it.
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

// Enqueue gives the works to the turn, which runs them next.
//
// hot: no lock.
func (i *Inline) Enqueue(list scheduler.TaskList, t *scheduler.RunLoop) {
	now := t.Now()
	for w := list.Head; w != nil; w = w.Next() {
		w.Enqueued = now
	}
	i.pending.Add(list.Len())
	t.Inline(i, list)
}

// RunInline executes the works and completes them together. A batch that is on its way
// as one, and not too large for the model, is executed as one; other works are
// executed one after the other.
func (i *Inline) RunInline(list scheduler.TaskList, t *scheduler.RunLoop) {
	n := list.Len()
	if !i.runner.RunSealed(i.inst, &list, t) {
		list = i.separately(list, t)
	}
	i.pending.Add(-n)
	scheduler.Complete(list, t)
}

// separately executes every work by itself, and keeps a batch one that was one.
func (i *Inline) separately(list scheduler.TaskList, t *scheduler.RunLoop) (done scheduler.TaskList) {
	whole := list.Sealed()
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
	if whole {
		done.Seal()
	}
	return done
}

// Help has nothing to help with: work never waits here.
func (*Inline) Help(*scheduler.RunLoop) bool { return false }

// InFlight returns how many works are queued or executing.
func (i *Inline) InFlight() int64 { return i.pending.Now() }

// Drain waits until nothing is executing.
func (i *Inline) Drain(ctx context.Context) error { return i.pending.Wait(ctx) }

// Close closes the instance.
func (i *Inline) Close() error { return i.inst.Close() }

// Package direct schedules models that do not batch across requests: each request is one execution. Tasks of an inline
// model execute on the goroutine of the step before; others wait in order of arrival for a free instance. For example,
// a tokenizer in Go is inline, an ONNX model without dynamic_batching is not.
package direct

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/pending"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/batch"
	"github.com/tutti-server/tutti/scheduler/deadline"
	"github.com/tutti-server/tutti/scheduler/queue"
)

// Settings are those of the queue. New sets the policy; NewInline uses the runner and one instance.
type Settings = queue.Settings

// New returns a scheduler that executes requests one by one, as many at a time as there are instances. Those of a backends.SerialModel
// that wait are passed to an instance together if their executions are short, unless a limiter counts executions.
func New(s Settings) scheduler.Scheduler {
	policy := oldest{serial: s.Runner.Serial}
	if slices.ContainsFunc(s.Limiters, func(l scheduler.Limiter) bool { return l != nil }) {
		policy.serial = func() int { return 1 }
	}
	s.Policy = policy
	return queue.New(s)
}

// oldest is a policy of one request at a time, or of as many as serial says for one call of a backends.SerialModel.
type oldest struct{ serial func() int }

// Decide takes the oldest task, or an instance's share of the oldest ones.
func (o oldest) Decide(_ int64, v scheduler.View, scratch []int32) scheduler.Decision {
	n := 1
	if queued, instances := len(v.Items), max(int(v.Instances), 1); queued > 1 {
		n = min((queued+instances-1)/instances, o.serial())
	}
	for i := range n {
		scratch = append(scratch, int32(i)) //nolint:gosec // in a window of tasks
	}
	return scheduler.Decision{Take: scratch}
}

// Inline executes tasks on the goroutine that enqueues them, or fails them.
type Inline struct {
	runner  *batch.Runner
	inst    backends.Instance // nil: tasks fail with why
	why     error
	pending pending.Count
	held    held // background tasks
	observed
}

// observed are the times of an inline model's executions, from the first forecast on.
type observed struct {
	watching atomic.Bool
	mu       sync.Mutex
	latency  deadline.Latency // guarded by mu
}

// observe adds an execution that has succeeded.
func (o *observed) observe(list *scheduler.TaskList) {
	w := list.Head
	if w == nil || w.Err != nil {
		return
	}
	rows := float64(list.Rows())
	o.mu.Lock()
	o.latency.Observe(rows, rows, w.Times.InferEnd-w.Times.InputEnd)
	o.mu.Unlock()
}

// Forecast implements scheduler.Forecaster. Nothing waits for an inline model. The first call has executions observed from then on.
func (o *observed) Forecast(int64, int64, *infer.Client) (s deadline.Stage, ok bool) {
	o.watching.Store(true)
	o.mu.Lock()
	defer o.mu.Unlock()
	return deadline.Stage{Latency: o.latency}, o.latency.Known()
}

// NewInline returns a scheduler over one instance of a concurrent model.
func NewInline(s Settings) *Inline {
	i := &Inline{runner: s.Runner, inst: s.Instances[0]}
	i.held.workers, i.held.process = s.Workers, s.Workers.Background()
	return i
}

// NewClosed returns the scheduler of a model without active instances. It fails every task with why.
func NewClosed(runner *batch.Runner, why error) *Inline { return &Inline{runner: runner, why: why} }

// Enqueue implements scheduler.Scheduler: the tasks execute next.
//
// hot: no lock.
func (i *Inline) Enqueue(list scheduler.TaskList, t *scheduler.RunLoop) {
	list.Stamp(t.Now())
	i.pending.Add(list.Len())
	if p := i.held.process; p != nil && p.Watching() && !p.Quiet(t.Now()) {
		if list = i.hold(list); list.Len() == 0 {
			return
		}
	}
	t.Inline(i, list)
}

// RunInline executes the tasks, a sealed list that the model can take as one batch, and completes them together.
func (i *Inline) RunInline(list scheduler.TaskList, t *scheduler.RunLoop) {
	n := list.Len()
	switch {
	case i.inst == nil:
		i.runner.Reject(&list, i.why, t.Now())
	case !i.runner.RunSealed(i.inst, &list, t):
		list = i.runEach(list, t)
	case i.watching.Load():
		i.observe(&list)
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
			if i.watching.Load() {
				i.observe(&one)
			}
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
func (i *Inline) Close() error {
	if i.inst == nil {
		return nil
	}
	return i.inst.Close()
}

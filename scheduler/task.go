package scheduler

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
)

// Task is one request at one node. It is embedded in the run that sends it, so that enqueueing allocates nothing.
//
// Ownership: the sender fills TaskRequest and calls Enqueue, which moves the task to the
// scheduler. From then on only the scheduler may read or write it, until it calls
// Completer.Complete with the task, which moves it back. A task is in at most one TaskList.
type Task struct {
	TaskRequest
	TaskResult
	TaskState
	// Traced records where the task's time went; nil for a request that is not traced.
	Traced *TaskTrace

	next *Task // in a TaskList
}

// TaskRequest is what travels with a task. The sender sets it.
type TaskRequest struct {
	// To takes the task back when it is done; Run and Node are for its use.
	To   Completer
	Run  any
	Node int32
	// Step is the node's number in the whole plan, for traces.
	Step int32
	// Rows is the size of the batch dimension, 1 when the model does not batch.
	Rows int32
	// Want restricts where the task executes; Affinity binds its request's steps to one device, unless nil.
	Want     Want
	Affinity *Affinity
	// Path is what is predicted of the way from the step to the response; nil for a model that is no step of an ensemble.
	Path *Path

	Meta *infer.Meta
	// Ctx ends when the client disconnects.
	Ctx context.Context //nolint:containedctx // a task is a request in flight
	// In are the inputs in the order of the model's signature; they move with the task. Optional ones may be absent.
	In []tensor.Tensor
	// Outputs are the names of the outputs that will be read, empty for all; borrowed.
	Outputs []string
	// Placeholder marks a row that fills a gap in a batch: it executes, but it is not counted and has no response.
	Placeholder bool
}

// Path is what is predicted of the way of an ensemble's requests from the end of a step to their responses. Tasks of the step share it.
type Path struct {
	// Rest is the predicted time from the end of the step to the response, in ns; 0 while it is not known.
	Rest atomic.Int64
	// Graph is the number of the ensemble's graph, not 0, and Depth the longest distance of the step from its first steps.
	Graph int64
	Depth int
	// Prompt says that completing a task waits for no client: outputs are sent when all are known.
	Prompt bool
	// Within is Rest for clients within their shares, who do not wait for what others have queued beyond theirs. It is set where clients
	// are told apart.
	Within atomic.Int64
}

// Due returns by when the task must be done for its request to meet its deadline, 0 without one.
func (w *Task) Due() int64 {
	d := w.Meta.Deadline
	if d > 0 && w.Path != nil {
		return max(d-w.Rest(), 1)
	}
	return d
}

// Rest returns the predicted time from the end of the step to the response, in ns; 0 while it is not known, or without a path. Of a client it
// is that within its share: what it has beyond waits in the queues, and is dropped there when it is late.
func (w *Task) Rest() int64 {
	switch {
	case w.Path == nil:
		return 0
	case w.Meta.Client != nil:
		return w.Path.Within.Load()
	}
	return w.Path.Rest.Load()
}

// ErrMissed returns the error of a request that would end at a time that is after its deadline, or so shortly before that any delay makes it
// late, because of a model or step.
func ErrMissed(step string, m *infer.Meta, now, ends int64) error {
	arrived := m.Arrived
	if arrived == 0 {
		arrived = now
	}
	takes, allowed, than := ends-arrived, max(m.Deadline-arrived, 0), "more than"
	if takes <= allowed {
		than = "too close to"
	}
	return &status.Error{
		Code: status.Unavailable, Reason: status.DeadlineUnreachable, Step: step, Finish: time.Duration(takes),
		RetryAfter: max(time.Duration(max(ends-m.Deadline, (ends-now)/10)).Round(time.Millisecond), time.Millisecond),
		Msg: fmt.Sprintf("Request deadline cannot be met: '%s' has too much to do. The response is expected %v after the request's arrival, %s the %v that are allowed",
			step, millis(takes), than, millis(allowed)),
	}
}

// millis rounds a time for a text.
func millis(ns int64) time.Duration {
	d := time.Duration(ns)
	switch {
	case d >= 10*time.Millisecond:
		return d.Round(time.Millisecond)
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(time.Microsecond)
}

// TaskResult is what a completed task returns. The scheduler sets it.
type TaskResult struct {
	// Out are the outputs in the signature's order. The sender provides the slice; tensors move with the completion.
	Out []tensor.Tensor
	// Err is why the task failed; the tensors of Out are absent then.
	Err error
	// ResponseParams are the parameters of the response.
	ResponseParams infer.Params
	// Times are the phases of the execution on the host.
	Times telemetry.Times
	// Measured is the batch if its device measures it: it is counted when the device has executed it, by the scheduler. The sender must
	// reset it before it enqueues the task.
	Measured telemetry.Pending
	// Retries is how often the task was executed again after failures.
	Retries int32
	// Cached reports that the outputs come from a response cache.
	Cached bool
	// Rescheduled reports that the model asked to execute the task once more; its inputs are released.
	Rescheduled bool
}

// TaskState is what schedulers note about a task while they have it. Senders leave it alone.
type TaskState struct {
	// Enqueued is when the task was enqueued, on the clock of telemetry.Now.
	Enqueued int64
	// Held is when the policy first delayed the batch that the task is the first of, 0 when it did not.
	Held int64
	// Shape hashes what must agree in a batch, Length is the padded extent; batch.Runner.Measure sets all three.
	Shape    uint64
	Length   int32
	Elements int64
	// Refusal is the counter of a task that ends without an execution.
	Refusal telemetry.Refusal
	// Probe marks a task that is executed although it is expected to be late; see infer.Meta.
	Probe bool
	// Unexecuted marks a task of a list that batch.Runner.Run has left out: it is to be executed in another call.
	Unexecuted bool
	// Apart marks a task that is executed in a call of its own, because a call with others failed.
	Apart bool
	// Seq is the task's position in a queue whose responses leave in order of arrival.
	Seq uint64
	// Host executes the task, when its model is decoupled. May be nil.
	Host BatchHandle
	// Solo is memory for the batch of a task that executes alone.
	Solo Solo
}

// Solo is a batch of one request.
type Solo struct {
	Batch   backends.Batch
	Request [1]backends.Request
}

// TaskTrace is what a traced task records besides its result.
type TaskTrace struct {
	Trace *tracing.Trace
	// SubRun numbers the run of a decoupled step's response that the task belongs to; 0 is the request's first run.
	SubRun int32
	// After is the node whose output arrived last of those that the task waited for.
	After int32
	// Ready is when the task's last input arrived.
	Ready int64
	// Execution describes the batch that executed the task.
	Execution tracing.Execution
	// Spilled counts the bytes of the batch's tensors that did not fit into the memory pool of its device. It is set while a batch
	// executes at a device; its tasks share it.
	Spilled *atomic.Int64
}

// Trace returns the trace of the task's request, nil when it is not traced.
func (w *Task) Trace() *tracing.Trace {
	if w.Traced == nil {
		return nil
	}
	return w.Traced.Trace
}

// Expired returns why the task must not be executed any more: its client has disconnected, or
// its deadline has passed at now. It returns nil for a task that may execute.
//
// hot: called once per task before it executes.
func (w *Task) Expired(now int64) error {
	if err := w.Ctx.Err(); err != nil {
		if err == context.DeadlineExceeded { // never wrapped
			return status.ErrDeadline
		}
		return status.ErrCancelled
	}
	if d := w.Meta.Deadline; d > 0 && now >= d {
		if _, own := w.Ctx.Deadline(); !own {
			return status.ErrLate
		}
		return status.ErrDeadline
	}
	return nil
}

// Next returns the task that follows in its list.
func (w *Task) Next() *Task { return w.next }

// TaskList is a linked list of tasks. The zero value is empty. Copying moves it: only one copy may be used afterwards.
//
// A sealed list is a batch that stays together: its tasks were executed together, in this order, and all go on to the
// same node. Where an instance is free and the policy would take just these tasks, they execute as one batch again;
// their tensors are neighbours in memory, which are joined without a copy. For example, four requests that the first
// model of a chain batched reach the second as one sealed list of four. A queue may still split it or add to it: Push
// and Pop unseal a list. The seal is a hint; gathering compares the tensors.
type TaskList struct {
	Head, tail *Task
	n          int
	sealed     bool
}

// Len returns the number of tasks.
func (l *TaskList) Len() int { return l.n }

// Sealed reports whether the tasks are a batch that stays together.
func (l *TaskList) Sealed() bool { return l.sealed }

// Seal marks the tasks, executed together in row order, as a batch that stays together, unless it is a single one.
func (l *TaskList) Seal() { l.sealed = l.n > 1 }

// Rows returns the rows of all tasks.
func (l *TaskList) Rows() int32 {
	n := int32(0)
	for w := l.Head; w != nil; w = w.next {
		n += w.Rows
	}
	return n
}

// Push appends a task that is in no list.
func (l *TaskList) Push(w *Task) {
	w.next, l.sealed = nil, false
	if l.tail == nil {
		l.Head = w
	} else {
		l.tail.next = w
	}
	l.tail = w
	l.n++
}

// Pop removes and returns the first task, or nil.
func (l *TaskList) Pop() *Task {
	w := l.Head
	if w == nil {
		return nil
	}
	l.Head, w.next, l.sealed = w.next, nil, false
	if l.Head == nil {
		l.tail = nil
	}
	l.n--
	return w
}

// CutUnexecuted removes and returns the unexecuted tasks, which are the last ones, and clears their marks.
//
// hot: a comparison when there is none.
func (l *TaskList) CutUnexecuted() (rest TaskList) {
	if l.tail == nil || !l.tail.Unexecuted {
		return rest
	}
	all := *l
	*l = TaskList{}
	for w := all.Pop(); w != nil; w = all.Pop() {
		if w.Unexecuted {
			w.Unexecuted = false
			rest.Push(w)
		} else {
			l.Push(w)
		}
	}
	return rest
}

// Stamp sets the time at which the tasks were enqueued.
func (l *TaskList) Stamp(now int64) {
	for w := l.Head; w != nil; w = w.next {
		w.Enqueued = now
	}
}

// Want restricts the kind of place where a task may execute.
type Want uint8

// The wants.
const (
	Anywhere Want = iota
	AtHost
	AtDevice
)

// Affinity keeps the steps of one request at one device: the first step that executes at a device binds the request to
// it. For example, once a detector has run on GPU 1, the classifier behind it runs there, too, and the crops do not
// travel. It is safe for concurrent use, but for Reset. The zero value is not bound.
type Affinity struct {
	device  atomic.Int32 // its number plus 1, 0 when not bound
	allowed uint64       // devices that all steps at devices can use, by bit; 0 for any
}

// Reset unbinds. allowed has a bit for each device that may be bound to, 0 for any.
func (a *Affinity) Reset(allowed uint64) {
	a.device.Store(0)
	a.allowed = allowed
}

// Bound returns the device; ok is false when there is none yet.
func (a *Affinity) Bound() (at tensor.Place, ok bool) {
	n := a.device.Load()
	return tensor.Place{Kind: tensor.Device, ID: int16(n - 1)}, n > 0
}

// Bind binds to the device at a place unless there is one already, and returns the one that is bound.
func (a *Affinity) Bind(at tensor.Place) tensor.Place {
	a.device.CompareAndSwap(0, int32(at.ID)+1)
	bound, _ := a.Bound()
	return bound
}

// Allows reports whether all steps at devices can use this one.
func (a *Affinity) Allows(at tensor.Place) bool {
	return a.allowed == 0 || at.ID < 64 && a.allowed&(1<<uint(at.ID)) != 0
}

// Bound returns the device that the task's request is bound to; ok is false without one, or on the host.
func (w *Task) Bound() (at tensor.Place, ok bool) {
	if w.Affinity == nil || w.Want == AtHost {
		return tensor.Place{}, false
	}
	return w.Affinity.Bound()
}

// Fits reports whether the task can execute at a place; together also requires that all device steps of its
// request can use the place.
func (w *Task) Fits(at tensor.Place, together bool) bool {
	device := at.Kind == tensor.Device
	if w.Want != Anywhere && (w.Want == AtDevice) != device {
		return false
	}
	return !together || !device || w.Affinity == nil || w.Affinity.Allows(at)
}

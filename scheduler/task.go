package scheduler

import (
	"context"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
)

// Task is one request at one node. It is embedded in the run that sends it, so that
// enqueueing allocates nothing.
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

	queued queued
	solo   solo
	next   *Task // in a TaskList
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
	// Want restricts where the task may execute, and Affinity binds the steps of its request
	// to one device; nil when each may execute anywhere.
	Want     Want
	Affinity *Affinity

	Meta *infer.Meta
	// Ctx ends when the client disconnects.
	Ctx context.Context //nolint:containedctx // a task is a request in flight
	// In are the inputs in the order of the model's signature. They move with the task. An
	// optional input that the request does not give is absent.
	In []tensor.Tensor
	// Outputs are the names of the outputs that will be read, empty for all; borrowed.
	Outputs []string
	// Placeholder marks a row that fills a gap in a batch. It is executed, but it is no
	// request: it is not counted and has no response.
	Placeholder bool
}

// TaskResult is what a completed task returns. The scheduler sets it.
type TaskResult struct {
	// Out are the outputs in the order of the model's signature. The sender provides the
	// slice; the tensors move to it with the completion.
	Out []tensor.Tensor
	// Err is why the task failed; the tensors of Out are absent then.
	Err error
	// ResponseParams are the parameters of the response.
	ResponseParams infer.Params
	// Times are the phases of the execution.
	Times telemetry.Times
	// Cached reports that the outputs come from a response cache.
	Cached bool
	// Rescheduled reports that the model asked to execute the task once more
	// (backends.Batch.Reschedule): it has neither succeeded nor failed, and its inputs are
	// released.
	Rescheduled bool
}

// TaskState is what schedulers note about a task while they have it.
type TaskState struct {
	// Enqueued is when the task was enqueued, on the clock of telemetry.Now.
	Enqueued int64
	// Held is when the policy first delayed the batch that the task is the first of, 0 when
	// it did not.
	Held int64
	shape
	why telemetry.Refusal // the counter of a task that is not executed
}

// shape is what decides which tasks may share a batch.
type shape struct {
	key      uint64 // what must agree in a batch
	length   int32  // the extent of the padded dimension
	elements int64  // of all inputs, those of variable size counted once a row
}

// TaskTrace is what a traced task records besides its result.
type TaskTrace struct {
	Trace *tracing.Trace
	// SubRun numbers the run of a decoupled step's response that the task belongs to; 0 is
	// the request's first run.
	SubRun int32
	// After is the node whose output arrived last of those that the task waited for.
	After int32
	// Ready is when the task's last input arrived.
	Ready int64
	// Execution describes the batch that executed the task.
	Execution tracing.Execution
}

// queued is what a Queue needs of a task that it holds or executes.
type queued struct {
	host     *Queue // who executes it, when the model is decoupled
	inst     backends.Instance
	detached bool // inst has been freed, guarded by host's mu

	parcel parcel  // of the list that this work is the first of
	at     spot    // in the station's queue
	line   *ticket // in the order of answers, nil when they leave as they come
}

// solo is the batch of a task that executes alone.
type solo struct {
	batch  backends.Batch
	member [1]backends.Request
}

// Trace returns the trace of the task's request, nil when it is not traced.
func (w *Task) Trace() *tracing.Trace {
	if w.Traced == nil {
		return nil
	}
	return w.Traced.Trace
}

// Over returns why the work must not be executed any more: its client has gone, or its
// deadline has passed at now; nil when neither is so.
//
// hot: looked at once per work before it executes.
func (w *Task) Expired(now int64) error {
	if err := w.Ctx.Err(); err != nil {
		if err == context.DeadlineExceeded { // never wrapped
			return status.ErrDeadline
		}
		return status.ErrCancelled
	}
	if d := w.Meta.Deadline; d > 0 && now >= d {
		return status.ErrDeadline
	}
	return nil
}

// Next returns the work that follows in the list.
func (w *Task) Next() *Task { return w.next }

// List is a chain of works in order.
//
// One that is whole is a batch on its way: its works were executed together, in this
// order, and all go on to the same node. It is enqueued as a unit and, where an
// instance is free and the policy would take just these works, executed as one: their
// tensors are neighbours in memory, which are joined without a copy. A queue takes it
// apart, so that it may grow or be split by the rules of its model, and whoever adds
// to it or takes from it makes it an ordinary list. To be whole is a hint: whoever
// joins tensors looks at them.
type TaskList struct {
	Head, tail *Task
	n          int
	whole      bool
}

// Len returns the number of works.
func (l *TaskList) Len() int { return l.n }

// Whole reports whether the works are a batch that travels as a unit.
func (l *TaskList) Whole() bool { return l.whole }

// Seal makes the works, executed together and in row order, a unit. One work alone is
// no batch.
func (l *TaskList) Seal() { l.whole = l.n > 1 }

// Unseal makes the works an ordinary list.
func (l *TaskList) Unseal() { l.whole = false }

// rows returns the rows of all works.
func (l *TaskList) rows() int32 {
	n := int32(0)
	for w := l.Head; w != nil; w = w.next {
		n += w.Rows
	}
	return n
}

// one reports whether all works have the same Completer.
func (l *TaskList) one() bool {
	for w := l.Head.next; w != nil; w = w.next {
		if w.To != l.Head.To {
			return false
		}
	}
	return true
}

// Push appends one work that is in no list.
func (l *TaskList) Push(w *Task) {
	w.next, l.whole = nil, false
	if l.tail == nil {
		l.Head = w
	} else {
		l.tail.next = w
	}
	l.tail = w
	l.n++
}

// Pop removes and returns the first work, or nil.
func (l *TaskList) Pop() *Task {
	w := l.Head
	if w == nil {
		return nil
	}
	l.Head, w.next, l.whole = w.next, nil, false
	if l.Head == nil {
		l.tail = nil
	}
	l.n--
	return w
}

// Completer takes finished works back.
type Completer interface {
	// Complete takes the works of one executed batch, in row order. It may stage
	// further works on t. It must not block.
	Complete(list TaskList, t *RunLoop)
}

// Responder is a Completer that takes the answers of a decoupled model as they come.
type Responder interface {
	Completer
	// Respond moves one answer of w to its client, while w goes on executing; out are
	// the outputs in the model's order, params the answer's parameters, borrowed. It
	// waits while the client is behind, and fails when the client has gone.
	Respond(w *Task, out []tensor.Tensor, params infer.Params, final bool) error
}

// Failer is a Responder whose clients learn of a failure while the batch is still executed.
type Failer interface {
	Responder
	// Fail sends err to the client of w, which completes later with the same error; final says that no response follows.
	Fail(w *Task, err error, final bool)
}

// Complete hands a batch back, in one call per run of works with the same Completer.
// A batch of one Completer stays whole.
func Complete(list TaskList, t *RunLoop) {
	if list.Head == nil {
		return
	}
	if list.one() {
		list.Head.To.Complete(list, t)
		return
	}
	var part TaskList
	for w := list.Pop(); w != nil; w = list.Pop() {
		if part.Head != nil && part.Head.To != w.To {
			part.Head.To.Complete(part, t)
			part = TaskList{}
		}
		part.Push(w)
	}
	if part.Head != nil {
		part.Head.To.Complete(part, t)
	}
}

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

// Work is one request for one node. It is embedded in its run, so that enqueueing
// allocates nothing; whoever holds it owns it.
type Task struct {
	// To is told when the work is done; Run and Node are its own business.
	To   Completer
	Run  any
	Node int32
	// Step is the node's number in the whole plan, for traces.
	Step int32
	// Wave counts the answers of decoupled nodes that led to the work, for traces.
	SubRun int32
	// Rows is the size of the batch dimension, 1 when the model does not batch.
	Rows int32

	Meta *infer.Meta
	// Ctx is over when the client no longer waits.
	Ctx context.Context //nolint:containedctx // a work is a request in flight
	// In are the inputs in the model's order, moved to the scheduler; an absent one is not given.
	In []tensor.Tensor
	// Out are the outputs in the model's order, moved back with the completion.
	Out []tensor.Tensor
	// Affinity is the request's, nil when it may execute anywhere.
	Affinity *Affinity
	Want     Want
	// Outputs are the names of the outputs that somebody reads, empty for all; borrowed.
	Outputs []string
	// Err is why the work failed; Out is empty then.
	Err error
	// Cached marks a work whose outputs were found, not computed; the scheduler sets it.
	Cached bool

	// Null marks a row that stands for nobody: it is executed and not counted.
	Placeholder bool
	// Again is set when the model asked to execute the work once more (Batch.Reschedule):
	// it is neither done nor failed, and its inputs are released.
	Rescheduled bool
	// Reply are the parameters of the answer, set by whoever executes.
	ResponseParams infer.Params

	// Trace is the request's, nil when it is not traced. Ready is when the inputs were
	// known and After the node that was the last to finish of those waited for, both
	// set only then; Seen is what the execution was, set by whoever executes.
	Trace     *tracing.Trace
	Ready     int64
	After     int32
	Execution tracing.Execution

	// Enqueued is set by Enqueue, the times by whoever executes.
	Enqueued int64
	Times    telemetry.Times

	host     *Queue // who executes it, when the model is decoupled
	inst     backends.Instance
	detached bool // inst has been freed, guarded by host's mu

	batch    backends.Batch // of this work alone
	member   [1]backends.Req
	parcel   parcel // of the list that this work is the first of
	key      uint64 // what must agree in a batch, set by the station
	length   int32  // the extent of the padded dimension, set by the station
	elements int64  // of all inputs, those of variable size counted once a row, set by the station
	next     *Task

	at   spot              // in the station's queue
	why  telemetry.Refusal // as what a work counts that is not executed
	line *ticket           // in the order of answers, nil when they leave as they come
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

package scheduler

import (
	"context"

	"tutti/backends"
	"tutti/core/infer"
	"tutti/core/telemetry"
	"tutti/core/tensor"
)

// Work is one request for one node. It is embedded in its run, so that enqueueing
// allocates nothing; whoever holds it owns it.
type Work struct {
	// To is told when the work is done; Run and Node are its own business.
	To   Completer
	Run  any
	Node int32
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
	// Err is why the work failed; Out is empty then.
	Err error

	// Enqueued is set by Enqueue, the times by whoever executes.
	Enqueued int64
	Times    telemetry.Times

	batch  backends.Batch // of this work alone
	member [1]backends.Req
	key    uint64 // what must agree in a batch, set by the station
	length int32  // the extent of the padded dimension, set by the station
	next   *Work
}

// Next returns the work that follows in the list.
func (w *Work) Next() *Work { return w.next }

// List is a chain of works in order.
type List struct {
	Head, tail *Work
	n          int
}

// Len returns the number of works.
func (l *List) Len() int { return l.n }

// rows returns the rows of all works.
func (l *List) rows() int32 {
	n := int32(0)
	for w := l.Head; w != nil; w = w.next {
		n += w.Rows
	}
	return n
}

// Push appends one work that is in no list.
func (l *List) Push(w *Work) {
	w.next = nil
	if l.tail == nil {
		l.Head = w
	} else {
		l.tail.next = w
	}
	l.tail = w
	l.n++
}

// Pop removes and returns the first work, or nil.
func (l *List) Pop() *Work {
	w := l.Head
	if w == nil {
		return nil
	}
	l.Head, w.next = w.next, nil
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
	Complete(list List, t *Turn)
}

// Responder is a Completer that takes the answers of a decoupled model as they come.
type Responder interface {
	Completer
	// Respond moves one answer of w to its client, while w goes on executing; out are
	// the outputs in the model's order. It waits while the client is behind, and
	// fails when the client has gone.
	Respond(w *Work, out []tensor.Tensor, final bool) error
}

// Complete hands a batch back, in one call per run of works with the same Completer.
func Complete(list List, t *Turn) {
	var part List
	for w := list.Pop(); w != nil; w = list.Pop() {
		if part.Head != nil && part.Head.To != w.To {
			part.Head.To.Complete(part, t)
			part = List{}
		}
		part.Push(w)
	}
	if part.Head != nil {
		part.Head.To.Complete(part, t)
	}
}

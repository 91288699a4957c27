package tracing

import (
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// Step is one node of a request's plan, from when its inputs were known until its
// outputs were. Times are those of telemetry.Now; those of an execution are 0 when
// there was none.
type Step struct {
	Span SpanID
	// Node is the step's position in the plan, After that of the step that was the last
	// to finish of those it waited for, -1 for the request itself. Wave is 0, or counts
	// the answers of decoupled steps that have led to it.
	Node, After, SubRun int32
	Model               string
	Version             int64
	// Own marks the only step of a plain model's request.
	Single bool
	// Cached marks a step whose outputs were found.
	Cached, Failed bool
	Code           status.Code

	// Ready is when all inputs were known, Enqueued when the model's queue had the
	// work, Done when the plan went on.
	Ready, Enqueued, Done int64
	Execution

	// Number counts as the Record's does; the only step of a plain model's has none.
	Number uint64
}

// Execution is what a batch was for one of its members.
type Execution struct {
	// Start is when an instance took the batch, InputEnd when its inputs were together,
	// InferEnd when the model was done, End when the outputs were handed on.
	Start, InputEnd, InferEnd, End int64
	// Batch is the number of the executed batch, 0 when there was none, Instance that of
	// the instance among the model's; Place is where it is.
	Batch    uint64
	Instance int32
	Place    tensor.Place
	// Native marks a step of this process's own.
	Native bool
	// Rows are the work's, BatchRows the batch's, of Members works.
	Rows, BatchRows, Members int32
	// Elements are those of the batch along the padded dimension, Padding what was
	// added to them.
	Elements, Padding int64
	// Before is the batch that the instance was busy with before this one, until
	// BeforeEnd.
	Before    uint64
	BeforeEnd int64
	// Held is when the policy first held works back for others to join, 0 when it did
	// not; Newest is when the last member was queued.
	Held, Newest int64
}

// EventKind is what an Event tells of.
type EventKind uint8

// The kinds of events.
const (
	// EventCopy is a copy of a tensor between places: Tensor, Bytes, From, To, Reason.
	EventCopy EventKind = iota
	// EventCacheHit and EventCacheMiss tell of a look into the response cache.
	EventCacheHit
	EventCacheMiss
	// EventRefused is a work that no queue took: Reason.
	EventRefused
	// EventCancelled is a client that has gone, EventDeadline a deadline that passed.
	EventCancelled
	EventDeadline
	// EventWave is an answer of a decoupled step that the steps behind it take.
	EventSubRun
	// EventReport is what a model reports while it executes: Reason is the name.
	EventReport
	numEvents
)

var eventNames = [numEvents]string{"copy", "cache_hit", "cache_miss", "refused", "cancelled", "deadline", "wave", "report"}

// String returns the kind's name.
func (k EventKind) String() string {
	if k < numEvents {
		return eventNames[k]
	}
	return "unknown"
}

// Event is something that happened to a request. What its kind does not name is zero.
type Event struct {
	Kind EventKind
	At   int64
	// Node is the step's, -1 for the request.
	Node     int32
	Tensor   string
	Bytes    int64
	From, To tensor.Place
	Reason   string
}

// BatchMembers is how many members of a batch are known by their traces.
const BatchMembers = 16

// Batch is one executed batch of which a member is traced.
type Batch struct {
	Execution
	Model   string
	Version int64
	// Traces are those of the first members, so many as Known says.
	Traces [BatchMembers]TraceID
	Known  int32
	Failed bool
	// Links are all members that are exported with their spans. Unlike the rest it may
	// be kept.
	Links []Context
}

// Join notes a member of the batch; nothing for nil.
func (b *Batch) Join(t *Trace) {
	if t == nil {
		return
	}
	if b.Known < BatchMembers {
		b.Traces[b.Known] = t.ID()
		b.Known++
	}
	if t.Sampled() && t.tracer.mode == ModeOpenTelemetry {
		b.Links = append(b.Links, Context{ID: t.rec.ID, Span: t.rec.Span})
	}
}

// Executed tells the sinks of a batch; b is borrowed.
func (t *Trace) Executed(b *Batch) {
	for _, s := range t.tracer.sinks {
		s.Batch(b)
	}
}

// NextBatch returns the number of one more executed batch.
func (t *Trace) NextBatch() uint64 { return t.tracer.batches.Add(1) }

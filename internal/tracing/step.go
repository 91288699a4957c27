package tracing

import (
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// Step is one execution of a node of a request's plan. Times are those of telemetry.Now; the times of Execution are
// 0 when the node was not executed.
type Step struct {
	Span SpanID
	// Node is the node's position in the plan. After is the position of the dependency that finished last, -1 for
	// the request itself. SubRun is 0, or the number of responses of decoupled steps that led to it.
	Node, After, SubRun int32
	Model               string
	Version             int64
	// Single marks the only step of a plain model's request.
	Single bool
	// Cached marks a step whose outputs came from the response cache.
	Cached, Failed bool
	Code           status.Code

	// Ready is when all inputs were available, Enqueued when the model's queue accepted the task, Done when the
	// plan continued.
	Ready, Enqueued, Done int64
	Execution

	// Number is the step's number in the sequence of Record.Number; 0 for the only step of a plain model.
	Number uint64
}

// Execution describes an executed batch from the view of one member.
type Execution struct {
	// Start is when an instance started the batch, InputEnd when its inputs were gathered, InferEnd when the model
	// returned, End when the outputs were passed on.
	Start, InputEnd, InferEnd, End int64
	// Batch is the number of the executed batch, 0 when there was none. Instance is the index of the instance among
	// the model's, Place its memory place.
	Batch    uint64
	Instance int32
	Place    tensor.Place
	// Native marks a step that runs in this process.
	Native bool
	// Rows are the task's rows, BatchRows the batch's, Members the tasks of the batch.
	Rows, BatchRows, Members int32
	// Elements counts the batch's elements along the padded dimension, Padding the added ones.
	Elements, Padding int64
	// Before is the number of the batch that occupied the instance before this one, until BeforeEnd.
	Before    uint64
	BeforeEnd int64
	// Held is when the batcher first delayed tasks to fill the batch, 0 when it did not. Newest is when the last
	// member was queued.
	Held, Newest int64
}

// EventKind is the kind of an Event.
type EventKind uint8

// The kinds of events.
const (
	// EventCopy is a copy of a tensor between places: Tensor, Bytes, From, To, Reason.
	EventCopy EventKind = iota
	// EventCacheHit and EventCacheMiss are lookups in the response cache.
	EventCacheHit
	EventCacheMiss
	// EventRefused is a task that no queue accepted: Reason.
	EventRefused
	// EventCancelled means that the client disconnected, EventDeadline that a deadline passed.
	EventCancelled
	EventDeadline
	// EventSubRun is a response of a decoupled step that starts a sub-run.
	EventSubRun
	// EventReport is an event that a model reports while it executes: Reason is its name.
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

// Event is something that happened to a request. Fields that its kind does not use are zero.
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

// BatchMembers bounds the trace ids of members that a Batch holds.
const BatchMembers = 16

// Batch is one executed batch that has a traced member.
type Batch struct {
	Execution
	Model   string
	Version int64
	// Traces are the trace ids of the first members; Known is their number.
	Traces [BatchMembers]TraceID
	Known  int32
	Failed bool
	// Links are the span contexts of all exported members. A Sink may retain this slice, unlike the rest.
	Links []Context
}

// Join adds a member to the batch. A nil t is ignored.
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

// Executed passes an executed batch to the sinks, which borrow it.
func (t *Trace) Executed(b *Batch) {
	for _, s := range t.tracer.sinks {
		s.Batch(b)
	}
}

// NextBatch returns a new batch number.
func (t *Trace) NextBatch() uint64 { return t.tracer.batches.Add(1) }

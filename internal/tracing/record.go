package tracing

import (
	"cmp"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// Point is an event in the life of a request, for example the start of its computation. The constants are in
// chronological order.
type Point uint8

// The points, named as in trace files. A request's queue time ends at
// ComputeStart, and the model runs from ComputeInputEnd to ComputeOutputStart.
const (
	HTTPRecvStart Point = iota
	HTTPRecvEnd
	GRPCWaitReadStart
	GRPCWaitReadEnd
	RequestStart
	QueueStart
	ComputeStart
	ComputeInputEnd
	ComputeOutputStart
	ComputeEnd
	InferResponseComplete
	RequestEnd
	HTTPSendStart
	HTTPSendEnd
	GRPCSendStart
	GRPCSendEnd
	numPoints
)

var pointNames = [numPoints]string{
	"HTTP_RECV_START", "HTTP_RECV_END", "GRPC_WAITREAD_START", "GRPC_WAITREAD_END",
	"REQUEST_START", "QUEUE_START", "COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END",
	"INFER_RESPONSE_COMPLETE", "REQUEST_END",
	"HTTP_SEND_START", "HTTP_SEND_END", "GRPC_SEND_START", "GRPC_SEND_END",
}

// String returns the name that trace files have.
func (p Point) String() string { return nameOf(pointNames[:], int(p), "UNKNOWN") }

func nameOf(names []string, i int, unknown string) string {
	if i < len(names) {
		return names[i]
	}
	return unknown
}

// First returns the time of the first moment at a point, 0 without one.
func (r *Record) First(p Point) int64 {
	for _, m := range r.Moments {
		if m.Point == p {
			return m.Ns
		}
	}
	return 0
}

// Last returns the time of the last moment at a point, 0 without one.
func (r *Record) Last(p Point) int64 {
	at := int64(0)
	for _, m := range r.Moments {
		if m.Point == p {
			at = max(at, m.Ns)
		}
	}
	return at
}

// Ended returns when the last execution of a node was done, 0 if it was not executed.
func (r *Record) Ended(node int32) int64 {
	at := int64(0)
	for i := range r.Steps {
		if s := &r.Steps[i]; s.Node == node && !s.Failed && (s.Batch != 0 || s.Cached) {
			at = max(at, s.Complete())
		}
	}
	return at
}

// Bounds returns the earliest and the latest recorded time.
func (r *Record) Bounds() (start, end int64) {
	start = r.BeganAt
	end = start
	for _, m := range r.Moments {
		start, end = min(start, m.Ns), max(end, m.Ns)
	}
	for i := range r.Steps {
		start, end = min(start, r.Steps[i].Ready), max(end, r.Steps[i].Complete())
	}
	return start, end
}

// UnixMicro returns the wall-clock time of one of the record's times, in microseconds since 1970.
func (r *Record) UnixMicro(ns int64) int64 { return (r.Began + ns - r.BeganAt) / 1000 }

// CopyTo copies the record to *to and reuses the memory of to's lists.
func (r *Record) CopyTo(to *Record) {
	old := *to
	*to = *r
	to.Moments, to.Steps, to.Events, to.Params, to.Forecasts = old.Moments[:0], old.Steps[:0], old.Events[:0], old.Params[:0], old.Forecasts[:0]
	to.Moments = append(to.Moments, r.Moments...)
	to.Steps = append(to.Steps, r.Steps...)
	to.Events = append(to.Events, r.Events...)
	to.Params = append(to.Params, r.Params...)
	to.Forecasts = append(to.Forecasts, r.Forecasts...)
}

// Step is one execution of a node of a request's plan. Times are those of telemetry.Now; the times of Execution are
// 0 when the node was not executed.
type Step struct {
	Span SpanID
	// Node is the node's position in the plan. After is the position of the dependency that finished last, -1 for
	// the request itself. SubRun is 0, or the number of responses of decoupled steps that led to it.
	Node, After, SubRun int32
	Model               string
	Version             int64
	Single              bool // marks the only step of a plain model's request
	// Cached marks a step whose outputs came from the response cache.
	Cached, Failed bool
	Code           status.Code

	// Ready is when all inputs were available, Enqueued when the model's queue accepted the task, Done when the
	// plan continued.
	Ready, Enqueued, Done int64
	Execution

	Number uint64 // the step's number in the sequence of Record.Number; 0 for the only step of a plain model
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
	Native   bool // marks a step that runs in this process
	// Precision is that of the model: "int8", "bf16", "fp16", or "fp32" where it is declared. Otherwise it is empty.
	Precision string
	// Rows are the task's rows, BatchRows the batch's, Members the tasks of the batch.
	Rows, BatchRows, Members int32
	// Elements counts the batch's elements along the padded dimension, Padding the added ones.
	Elements, Padding int64
	Before            uint64 // the number of the batch that occupied the instance before this one, until BeforeEnd
	BeforeEnd         int64
	// Held is when the batcher first delayed tasks to fill the batch, 0 when it did not. Newest is when the last
	// member was queued.
	Held, Newest int64
	// Device are the times of the batch at its device, zero where they are not known. The times above are then those of the host, which
	// put the batch into the device's stream.
	Device telemetry.Times
}

// Moments returns the moments of the execution.
func (x *Execution) Moments() [4]Moment {
	return [4]Moment{{ComputeStart, x.Start}, {ComputeInputEnd, x.InputEnd}, {ComputeOutputStart, x.InferEnd}, {ComputeEnd, x.End}}
}

// Complete returns when the plan had continued and the device had executed the step's batch, whichever is later.
func (s *Step) Complete() int64 { return max(s.Done, s.Device.End) }

// EventKind is the kind of an Event.
type EventKind uint8

// The kinds of events.
const (
	EventCopy      EventKind = iota // of a tensor between places: Tensor, Bytes, From, To, Reason, Duration
	EventCacheHit                   // in the response cache
	EventCacheMiss                  // in the response cache
	EventRefused                    // no queue accepted a task: Reason
	EventCancelled                  // the client disconnected
	EventDeadline                   // a deadline passed
	EventSubRun                     // a response of a decoupled step starts a sub-run
	EventReport                     // a model reports an event while it executes: Reason is its name
	EventSpill                      // memory of a tensor is slower than what was asked for: as EventCopy without Duration; no Tensor for the model's own memory
	EventLoad                       // a task waited for its model to be loaded again: Duration
	EventChosen                     // a condition was evaluated: Reason is the step and how many rows it ran for
	EventSkipped                    // a step did not run, because its condition held for no row: Reason is the step and the condition
	EventFault                      // a step failed, was repeated, or was replaced: Reason says which and why
	EventFanOut                     // a step's items were divided: Reason is the demux, and how many rows, items and groups
	EventRouted                     // a step was divided: Reason is the step and the alternative that ran
	EventShadow                     // the response of a shadow was compared: Reason is the step, the model and what differs
	numEvents
)

var eventNames = [numEvents]string{"copy", "cache_hit", "cache_miss", "refused", "cancelled", "deadline", "wave", "report", "spill", "model_load", "rows_chosen", "step_skipped", "step_fault", "fan_out", "step_routed", "step_shadow"}

// Moves reports whether events of the kind have From and To.
func (k EventKind) Moves() bool { return k == EventCopy || k == EventSpill }

// String returns the kind's name.
func (k EventKind) String() string { return nameOf(eventNames[:], int(k), "unknown") }

// Event is something that happened to a request. Fields that its kind does not use are zero.
type Event struct {
	Kind     EventKind
	At       int64
	Duration int64 // of the copy at the device in ns, 0 when it was not made; or of the wait for a load
	Node     int32 // the step's, -1 for the request
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
	Traces  [BatchMembers]TraceID // the trace ids of the first members; Known is their number
	Known   int32
	Failed  bool
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

// Sink receives finished traces and executed batches. Sinks are given to New.
//
// Both methods are called on the goroutine that ends a request, so they must not block. They borrow their argument: a
// Sink that needs it later must copy it, for example with Record.CopyTo. They must be safe for concurrent use.
type Sink interface {
	// Trace takes a finished trace, whose Record it borrows. Traces that the trace settings did not sample
	// (Trace.Sampled) are sent only when Options.All is set.
	Trace(t *Trace)
	Batch(b *Batch) // takes an executed batch that has a traced member, before that member ends
}

// Recorder selects the requests whose tensors are recorded. It is given to New. Safe for concurrent use. For example,
// the store of package capture selects one in a hundred requests of a model while a capture is active.
type Recorder interface {
	// Active reports whether any request may be selected. It is called for every request.
	Active() bool
	// Select returns the Snapshot of a request, nil for one that is not selected.
	Select(model, request string, id TraceID) Snapshot
}

// Snapshot records the tensors of one request. Safe for concurrent use.
//
// Lifecycle:
//
//  1. Add announces a tensor. If it returns true, Put follows with the content, also when
//     copying it to the host failed.
//  2. Finish is called exactly once, when the request has ended; no other call follows.
type Snapshot interface {
	// Describe records what the request says besides its tensors. It is called at most once, before the first Add.
	Describe(q *RequestInfo)
	// Add announces a tensor, which it borrows. It returns the number for Put, and false when
	// the content must not be put because it is redacted or too large.
	Add(e *TensorEdge, t *tensor.Tensor) (n int, content bool)
	// Put moves the content of tensor n, which is on the host or being copied there. A non-nil err means that the
	// content could not be copied.
	Put(n int, t tensor.Tensor, err error)
	NextResponse() int32 // returns the number of one more response of a decoupled model, from 1
	Finish(r *Record)    // takes the finished record of the request, which it borrows
}

// RequestInfo is what a request says besides its tensors. Its lists belong to the request.
type RequestInfo struct {
	Outputs []string // the names of the requested outputs, empty for all
	// SequenceID or SequenceName identifies the sequence of the request, if it has one. Start and End mark the first and the
	// last request of the sequence.
	SequenceID   uint64
	SequenceName string
	Start, End   bool
	Params       []RequestParam
}

// RequestParam is a parameter of a request with the name of its type: "bool", "int64", "uint64", "double" or "string".
type RequestParam struct{ Key, Type, Value string }

// TensorEdge identifies a tensor in a plan.
type TensorEdge struct {
	// Step and Tensor name the producer: a step with its output, or RequestStep with an input. Node is the step's
	// number, -1 for the request and the response.
	Step, Tensor string
	Node         int32
	SubRun       int32 // 0, or the number of responses of decoupled steps that led to it
	// Names are all names of the tensor: in the ensembles, and of the inputs that read it. Models are all models
	// that produce, read or contain it.
	Names, Models []string
	Readers       []string // the inputs that read it, as step.input
}

// The Step of a TensorEdge whose tensor belongs to the request or the response.
const (
	RequestStep  = "request"
	ResponseStep = "answer"
)

// Capturing reports whether requests must be passed to Capture.
//
// hot: a nil check, and one load when there is a recorder.
func (t *Tracer) Capturing() bool { return t != nil && t.recorder != nil && t.recorder.Active() }

// Capture offers a request to the recorder before it is executed, and returns its trace: x, or, when x is nil and
// the recorder selects the request, a trace that only sinks receive.
func (t *Tracer) Capture(x *Trace, model string, version int64, request string, o *Origin) *Trace {
	fresh := x == nil
	if fresh {
		x = t.newTrace(nil, model, version, request)
	}
	if f := t.recorder.Select(model, request, cmp.Or(o.ID, x.rec.ID)); f != nil {
		x.snapshot, x.rec.Captured = f, true
		return x
	}
	if fresh {
		x.reset()
		return nil
	}
	return x
}

// Snapshot returns the snapshot of the request's tensors, nil when it has none.
//
// hot: nil checks.
func (t *Trace) Snapshot() Snapshot {
	if t == nil {
		return nil
	}
	return t.snapshot
}

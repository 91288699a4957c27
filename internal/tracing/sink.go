package tracing

import "github.com/tutti-server/tutti/core/tensor"

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
	// Add announces a tensor, which it borrows. It returns the number for Put, and false when
	// the content must not be put because it is redacted or too large.
	Add(e *TensorEdge, t *tensor.Tensor) (n int, content bool)
	// Put moves the content of tensor n, which is on the host or being copied there. A non-nil err means that the
	// content could not be copied.
	Put(n int, t tensor.Tensor, err error)
	NextResponse() int32 // returns the number of one more response of a decoupled model, from 1
	Finish(r *Record)    // takes the finished record of the request, which it borrows
}

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
	id := x.rec.ID
	if o.ID != (TraceID{}) {
		id = o.ID
	}
	if f := t.recorder.Select(model, request, id); f != nil {
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

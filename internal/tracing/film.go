package tracing

import "github.com/tutti-server/tutti/core/tensor"

// Camera chooses requests whose tensors are kept. It is given to New and asked for
// every request while it is on. Safe for concurrent use.
type Recorder interface {
	// On reports whether any request may be chosen.
	Active() bool
	// Pick returns what keeps the tensors of a request, nil for one that is not chosen.
	Select(model, request string, id TraceID) Snapshot
}

// Film keeps the tensors of one request. Safe for concurrent use.
type Snapshot interface {
	// Admit notes a tensor, which it borrows, and says whether its content is to be
	// given by Put under the returned number: not when it is redacted or too large.
	Add(e *TensorEdge, t *tensor.Tensor) (n int, content bool)
	// Put moves the content of tensor n, which is on the host or on its way there; an
	// error is why there is none.
	Put(n int, t tensor.Tensor, err error)
	// Answer returns the number of one more answer of a decoupled model, from 1.
	NextResponse() int32
	// End takes the request's finished record, borrowed. Nothing comes after.
	Finish(r *Record)
}

// Edge is a tensor's place in a plan.
type TensorEdge struct {
	// Step and Tensor name who made it: a step with its output, or the request with its
	// input. Node is the step's number, -1 for the request and the answer.
	Step, Tensor string
	Node         int32
	// Wave is 0, or counts the answers of decoupled steps that have led to it.
	SubRun int32
	// Names are all that the tensor is called, of the ensembles and of the inputs that
	// read it; Models are all that make, read or contain it.
	Names, Models []string
	// Readers are the inputs that it goes to, as step.input.
	Readers []string
}

// The steps of edges that no step has made.
const (
	RequestStep  = "request"
	ResponseStep = "answer"
)

// Capturing reports whether requests are to be shown to the camera.
//
// hot: a nil check, and one load when there is a camera.
func (t *Tracer) Capturing() bool { return t != nil && t.camera != nil && t.camera.Active() }

// Capture shows a request about to be served to the camera, and returns its trace: x,
// or when that is nil and the camera wants the request, one that only sinks see.
func (t *Tracer) Capture(x *Trace, model string, version int64, request string, o *Origin) *Trace {
	fresh := x == nil
	if fresh {
		x = t.newTrace(nil, model, version, request)
	}
	id := x.rec.ID
	if o.ID != (TraceID{}) {
		id = o.ID
	}
	if f := t.camera.Select(model, request, id); f != nil {
		x.film, x.rec.Captured = f, true
		return x
	}
	if fresh {
		x.reset()
		return nil
	}
	return x
}

// Film returns what keeps the request's tensors, nil when they are not kept.
//
// hot: nil checks.
func (t *Trace) Snapshot() Snapshot {
	if t == nil {
		return nil
	}
	return t.film
}

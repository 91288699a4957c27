package infer

import (
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/internal/tracing"
)

// Named is a tensor under its name.
type Named struct {
	Name   string
	Tensor tensor.Tensor
}

// Meta is what every step of a request may know about it.
type Meta struct {
	// ID is the client's request id, empty when it gave none.
	ID string
	// Sequence is the request's place in a sequence, as the client sent it.
	Sequence Sequence
	// Priority is the client's priority, 0 when it gave none; 1 is the highest.
	Priority uint64
	// Timeout is the client's timeout in microseconds, 0 when it gave none.
	Timeout uint64
	// Arrived is when Timeout begins, on the clock of telemetry.Now; 0 for when a queue takes the request.
	Arrived int64
	// Deadline is when the client no longer waits, on the clock of telemetry.Now; 0 when
	// it waits for any time. It is set when the request starts.
	Deadline int64
	// Params are the client's further parameters, in its order.
	Params Params
}

// Sequence names a sequence of requests and marks its ends.
type Sequence struct {
	ID         uint64
	Name       string // the correlation id when it is a string
	Start, End bool
}

// Request asks one model for outputs. Get one from NewRequest; Release returns it.
type Request struct {
	Meta
	Model string
	// Version is the wanted version, 0 for the one the version policy prefers.
	Version int64
	// Inputs own their tensors. Names are unique.
	Inputs []Named
	// Outputs are the wanted outputs' names, unique; empty for all.
	Outputs []string
	// Trace is what is seen of the request, nil when it is not traced. Release ends it.
	Trace *tracing.Trace
	// Origin is how the request came, for its trace.
	Origin tracing.Origin
	// Async keeps Submit from lending the calling goroutine: it returns at once.
	Async bool

	checked bool // CheckInputs has succeeded
}

var requests pool.Of[Request]

// NewRequest returns an empty request.
func NewRequest() *Request { return requests.Get() }

// Release releases the request's tensors and returns it for reuse.
func (r *Request) Release() {
	r.Trace.End()
	for i := range r.Inputs {
		r.Inputs[i].Tensor.Release()
		r.Inputs[i].Name = ""
	}
	clear(r.Outputs)
	clear(r.Params)
	*r = Request{Meta: Meta{Params: r.Params[:0]}, Inputs: r.Inputs[:0], Outputs: r.Outputs[:0]}
	requests.Put(r)
}

// Input returns the named input, or nil.
func (r *Request) Input(name string) *tensor.Tensor { return find(r.Inputs, name) }

// Response is one answer. Get one from NewResponse; Release returns it.
type Response struct {
	ID      string
	Model   string
	Version int64
	// Ensemble marks an ensemble's answer, in which Triton echoes the sequence parameters over HTTP.
	Ensemble bool
	// Sequence is what an ensemble echoes: the request's, or what a step put in its place.
	Sequence Sequence
	// Outputs own their tensors, in the model's order or the request's when it named them.
	Outputs []Named
	Params  Params
	// Trace is the request's, for what a front end sees of the answer; nil when it is not
	// traced. Release ends it.
	Trace *tracing.Trace
	// Final says that no further answer follows. A decoupled model may also end
	// without one so marked.
	Final bool
}

var responses pool.Of[Response]

// NewResponse returns an empty response.
func NewResponse() *Response { return responses.Get() }

// Release releases the response's tensors and returns it for reuse.
func (r *Response) Release() {
	r.Trace.End()
	for i := range r.Outputs {
		r.Outputs[i].Tensor.Release()
		r.Outputs[i].Name = ""
	}
	clear(r.Params)
	*r = Response{Outputs: r.Outputs[:0], Params: r.Params[:0]}
	responses.Put(r)
}

// Output returns the named output, or nil.
func (r *Response) Output(name string) *tensor.Tensor { return find(r.Outputs, name) }

// Size returns the bytes of the outputs.
func (r *Response) Size() (n int64) {
	for i := range r.Outputs {
		n += int64(r.Outputs[i].Tensor.Len)
	}
	return n
}

func find(list []Named, name string) *tensor.Tensor {
	for i := range list {
		if list[i].Name == name {
			return &list[i].Tensor
		}
	}
	return nil
}

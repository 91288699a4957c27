package infer

import (
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/internal/tracing"
)

// Named is a tensor with its name.
type Named struct {
	Name   string
	Tensor tensor.Tensor
}

// Meta is the part of a request that all steps can read.
type Meta struct {
	ID       string   // the client's request id, or empty
	Sequence Sequence // the request's position in a sequence, as the client sent it
	Priority uint64   // the client's priority, 0 for none; 1 is the highest
	Timeout  uint64   // the client's timeout in microseconds, 0 for none
	// Arrived is the begin of Timeout, on the clock of telemetry.Now; 0 for the time at which a queue accepts the
	// request.
	Arrived int64
	// Deadline is when the response must be ready, on the clock of telemetry.Now; 0 for none. A front end sets that of TimeLimitHeader. When
	// the request starts, it becomes the earliest of this one, that of the context, that of Timeout and that of the ensemble.
	Deadline int64
	// Background marks a request that must not delay others, such as those of a job: it executes in free places of batches, and
	// otherwise while no other request is served.
	Background bool
	// Client is whose request it is, nil where clients are not told apart.
	Client *Client
	// Probe marks a request that is executed although its response is expected after its deadline, so that the expectation is corrected.
	Probe  bool
	Params Params // the client's other parameters, in its order
}

// BackgroundHeader is the key of the gRPC metadata, and the name of the HTTP header, that marks a request as one in the background.
// Its value is "1".
const BackgroundHeader = "tutti-background"

// SetBackground follows the values of BackgroundHeader. A request of a sequence stays an ordinary one.
func (m *Meta) SetBackground(values []string) {
	if len(values) > 0 && values[0] == "1" && m.Sequence.ID == 0 && m.Sequence.Name == "" {
		m.Background = true
	}
}

// SetClient sets whose request it is, nil where clients are not told apart.
func (r *Request) SetClient(c *Client) {
	if r.Client = c; c != nil {
		r.Origin.Client = c.Name
	}
}

// Sequence identifies a sequence of requests and marks its first and last one.
type Sequence struct {
	ID         uint64
	Name       string // the correlation id when it is a string
	Start, End bool
}

// Request is an inference request to one model. Get one from NewRequest; Release returns it for reuse.
type Request struct {
	Meta
	Model   string
	Version int64          // the requested version, 0 for the one that the version policy prefers
	Inputs  []Named        // own their tensors. Names are unique.
	Outputs []string       // the names of the requested outputs, unique; empty for all
	Into    []Target       // device memory for some of the outputs; the others go to the host
	Trace   *tracing.Trace // the request's trace, nil when it is not traced. Release ends it.
	Origin  tracing.Origin // describes how the request arrived, for its trace
	// KeepPlaces leaves outputs at devices where the model has put them; its sink must take them there. Otherwise they are copied to
	// the host before the sink gets them.
	KeepPlaces bool
	// Nested marks a request of a model that executes, on behalf of a request that has been counted as an arrival.
	Nested bool
	// Early reports that the sink takes several responses, each with the outputs that are new, also where the model is not decoupled.
	Early bool
	Async bool // forbids Submit to execute on the calling goroutine: Submit returns at once

	checked bool // CheckInputs has succeeded
}

// Target is device memory of the client for an output. The executor copies the output there, wherever it is, and fails the request
// when the memory is too small. The response then describes the output, and has no content that the host could read.
type Target struct {
	Output string
	Buf    *tensor.Buffer // owned
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
	for i := range r.Into {
		r.Into[i].Buf.Release()
	}
	clear(r.Outputs)
	clear(r.Params)
	clear(r.Into)
	*r = Request{Meta: Meta{Params: r.Params[:0]}, Inputs: r.Inputs[:0], Outputs: r.Outputs[:0], Into: r.Into[:0]}
	requests.Put(r)
}

// Input returns the named input, or nil.
func (r *Request) Input(name string) *tensor.Tensor { return find(r.Inputs, name) }

// Target returns the client's device memory for an output, nil for one that goes to the host.
//
// hot: one comparison for a request without such memory.
func (r *Request) Target(output string) *tensor.Buffer {
	for i := range r.Into {
		if r.Into[i].Output == output {
			return r.Into[i].Buf
		}
	}
	return nil
}

// Response is one response of a model. Get one from NewResponse; Release returns it for reuse.
type Response struct {
	ID      string
	Model   string
	Version int64
	// Ensemble marks a response of an ensemble, in which Triton echoes the sequence parameters over HTTP.
	Ensemble bool
	Sequence Sequence // echoed by an ensemble: the request's, or the one that a step replaced it with
	Outputs  []Named  // own their tensors, in the model's order or the request's when it named them
	Params   Params
	// Trace is the request's trace, in which a front end records the response; nil when it is not traced. Release ends it.
	Trace *tracing.Trace
	// Final reports that no further response follows. A decoupled model may also end without a final response.
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

// ParamKind is the type of a parameter's value.
type ParamKind uint8

// The types a parameter can have on the wire.
const (
	ParamBool ParamKind = iota
	ParamInt
	ParamUint
	ParamDouble
	ParamString
)

// Param is one request or response parameter; the field its Kind names holds the value.
type Param struct {
	Key    string
	Kind   ParamKind
	Bool   bool
	Int    int64
	Uint   uint64
	Double float64
	String string
}

// kindNames are the names of types that Type returns.
var kindNames = [...]string{ParamBool: "bool", ParamInt: "int64", ParamUint: "uint64", ParamDouble: "double", ParamString: "string"}

// Type returns the name of the value's type: bool, int64, uint64, double or string.
func (p *Param) Type() string { return kindNames[p.Kind] }

// Text returns the value as text.
func (p *Param) Text() string {
	switch p.Kind {
	case ParamBool:
		return strconv.FormatBool(p.Bool)
	case ParamInt:
		return strconv.FormatInt(p.Int, 10)
	case ParamUint:
		return strconv.FormatUint(p.Uint, 10)
	case ParamDouble:
		return strconv.FormatFloat(p.Double, 'g', -1, 64)
	case ParamString:
	}
	return p.String
}

// Params is an ordered list of parameters with unique keys.
type Params []Param

// Forward adds a client's header that the server forwards as a parameter, and replaces a parameter of that name.
// The name must be in lower case, as in HTTP/2 and gRPC. Reserved names are InvalidArg.
func (r *Request) Forward(name, value string) error {
	if ReservedParam(name) || slices.Contains(reservedHeaders, name) {
		return status.Errorf(status.InvalidArg, "Header '%s' is reserved for Triton usage and cannot be forwarded.", name)
	}
	p := Param{Key: name, Kind: ParamString, String: value}
	for i := range r.Params {
		if r.Params[i].Key == name {
			r.Params[i] = p
			return nil
		}
	}
	r.Params = append(r.Params, p)
	return nil
}

// reservedHeaders are the parameters that the server itself uses.
var reservedHeaders = []string{"sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "headers", "binary_data_output"}

// Call is the Sink of a request with one response: get one from NewCall, submit the request
// with it, then call Wait, which returns it for reuse.
type Call struct {
	resp  *Response
	err   error
	state atomic.Int32 // records whether Close or Wait came first; in the latter case Wait blocks on wake
	wake  chan struct{}

	ender Ender // called by the waiter before it returns; nil for none
	next  *Call // the next one of a WakeList, later of those that the waiter wakes
}

// The states of a Call.
const (
	callOpen int32 = iota
	callClosed
	callAwaited
)

// Ender is an executed request whose response is not sent yet.
type Ender interface {
	// End makes the response, sends it and closes the sink.
	End()
}

var _ Sink = (*Call)(nil)

var calls = pool.Of[Call]{New: func() *Call { return &Call{wake: make(chan struct{}, 1)} }}

// NewCall returns a Call to submit one request with.
func NewCall() *Call { return calls.Get() }

// Send stores the response; a later one replaces it.
func (c *Call) Send(r *Response) {
	if c.resp != nil {
		c.resp.Release()
	}
	c.resp = r
}

// Close wakes the waiter, if there is one already. There is none, for example, when the
// submitting goroutine executed the request itself.
func (c *Call) Close(err error) {
	c.err = err
	if c.state.Swap(callClosed) == callAwaited {
		c.wake <- struct{}{}
	}
}

// Wait returns the response, which moves to the caller, or the error of Close, and returns
// the Call for reuse. It must be called once. It waits for Close even when the request's
// context is cancelled: the request's memory is in use until then.
func (c *Call) Wait() (*Response, error) {
	if c.state.CompareAndSwap(callOpen, callAwaited) {
		<-c.wake
		c.woken()
	}
	resp, err := c.resp, c.err
	c.resp, c.err = nil, nil
	c.state.Store(callOpen)
	calls.Put(c)
	if err != nil && resp != nil {
		resp.Release()
		resp = nil
	}
	return resp, err
}

// woken wakes the other waiters of the list and makes the waiter's own response.
func (c *Call) woken() {
	for n := c.next; n != nil; {
		after := n.next
		n.next = nil
		n.wake <- struct{}{}
		n = after
	}
	c.next = nil
	if e := c.ender; e != nil {
		c.ender = nil
		c.state.Store(callClosed) // no wake follows
		e.End()
	}
}

// WakeList is a list of calls whose waiters are woken together. The zero value is empty.
type WakeList struct {
	head, tail *Call
}

// Add lets the waiter of c make its own response when it is woken, and reports whether c has a waiter. The executing
// goroutine is spared that work, and the request's memory stays in the cache of the processor on which its client runs.
func (l *WakeList) Add(c *Call, e Ender) bool {
	if c.state.Load() != callAwaited {
		return false
	}
	c.ender = e
	if l.tail == nil {
		l.head = c
	} else {
		l.tail.next = c
	}
	l.tail = c
	return true
}

// Wake wakes all waiters. It wakes two directly, of which the first wakes the others: these become runnable on the
// waiter's processor, and other processors need not steal them from the executing one. The second one is woken directly
// because Go's scheduler does not steal the goroutine that was made runnable last for a while.
func (l *WakeList) Wake() {
	if l.head != nil {
		l.wake()
	}
}

func (l *WakeList) wake() {
	first := l.head
	second := first.next
	*l = WakeList{}
	if second != nil {
		first.next, second.next = second.next, nil
	}
	first.wake <- struct{}{}
	if second != nil {
		second.wake <- struct{}{}
	}
}

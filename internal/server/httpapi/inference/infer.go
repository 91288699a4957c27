// Package inference serves the infer and generate endpoints of the HTTP API: it decodes a request into an infer.Request, submits
// it, and encodes the response.
//
//   - infer.go: Service; the state of one request, pooled; an infer request from socket to socket
//   - decode.go: its JSON, parameters and binary tensors; tensors.go: its inputs and outputs, in JSON or shared memory
//   - encode.go: responses of infer and generate
//   - later.go: an infer request with "Prefer: respond-async", which is stored; prefer.go: that header
//   - generate.go: a generate request, streamed or not, and the Sink in which its responses wait
//
// A binary tensor is read from the connection into its own memory and written from the memory of the model's output. JSON
// tensors are parsed into tensor memory and printed from there.
package inference

import (
	"net/http"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/internal/server/httpapi/jsonwire"
	"github.com/tutti-server/tutti/internal/server/httpapi/transport"
	"github.com/tutti-server/tutti/internal/shm"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
)

// Service serves inference requests. Its methods are handlers and safe for concurrent use.
type Service struct {
	*transport.Shared
	names pool.Names
}

// New returns a Service.
func New(s *transport.Shared) *Service { return &Service{Shared: s} }

// scratchLimit bounds each buffer that a pooled exchange keeps between requests. It fits the buffer of a body of 1 MiB of
// unknown length, which has grown by doubling.
const scratchLimit = 2 << 20

// exchange is the state of one request, from its body to its response. The handler's goroutine owns it.
type exchange struct {
	srv  *Service
	in   transport.Body
	p    jsonwire.Parser
	req  *infer.Request // nil once it is submitted or rejected
	desc *infer.Description
	span tracing.Interval // in which the request was received
	// parsing marks an error in the request's content. Triton types the response to it as JSON.
	parsing bool

	inputs []input
	wanted wanted

	body    []byte   // the request's JSON, memory that is reused like the next two
	out     []byte   // the response's JSON
	members []member // of a generate response
}

// wanted is what a request says about its outputs.
type wanted struct {
	outputs []output // the outputs requested by name
	binary  bool     // how the other outputs are sent
	// windows are the open windows of inputs and outputs in shared memory. They are closed just before the response is sent, so
	// that a client which has the response can unregister its regions.
	windows []*shm.Window
}

// input is an input as the JSON describes it. Its tensor moves to the request once the input is complete.
type input struct {
	name   string
	dtype  tensor.DType
	shape  tensor.Shape
	have   field
	data   jsonwire.Mark // the JSON data, when it came before the shape or type
	size   int64         // binary_data_size
	region region
	tensor tensor.Tensor
}

// region is a part of a shared memory region.
type region struct {
	name         string
	offset, size uint64
}

// output is an output that the request names.
type output struct {
	name    string
	binary  bool
	classes uint64 // the number of classes to send instead of the tensor, 0 for the tensor
	region  region
	window  *shm.Window // where the tensor is written; nil for an output in the response
}

// field is a set of members that have been read.
type field uint32

// The members of a request, an input and an output, and of their parameters.
const (
	hasName field = 1 << iota
	hasDatatype
	hasShape
	hasData
	hasParameters
	hasBinary
	hasRegion
	hasOffset
	hasByteSize
	hasClasses
	hasID
	hasInputs
	hasOutputs
	isDecoded // the data is in the tensor
	paramID   // this and the following: the parameters of a request that the server itself interprets
	paramStart
	paramEnd
	paramPriority
	paramTimeout
	paramBinary
)

// first adds m and reports whether it was absent: of several members with one name the first counts.
func (f *field) first(m field) bool {
	if *f&m != 0 {
		return false
	}
	*f |= m
	return true
}

func (f field) has(m field) bool { return f&m != 0 }

var exchanges pool.Of[exchange]

func (s *Service) newExchange(r *http.Request) *exchange {
	x := exchanges.Get()
	x.srv, x.span = s, s.Tracer.Begin()
	x.in.Begin(s.Shared)
	x.in.Charge.For(s.Client(r))
	return x
}

// release returns x to the pool, without the memory that a large request needed.
func (x *exchange) release() {
	for i := range x.inputs {
		x.inputs[i].tensor.Release() // after an error: otherwise the request owns it
	}
	x.closeWindows()
	clear(x.inputs)
	clear(x.wanted.outputs)
	x.inputs, x.wanted.outputs = x.inputs[:0], x.wanted.outputs[:0]
	x.srv, x.req, x.desc, x.parsing, x.wanted.binary, x.span = nil, nil, nil, false, false, tracing.Interval{}
	x.p.Release(scratchLimit)
	x.body, x.out = trim(x.body), trim(x.out)
	if cap(x.inputs) > 1024 || cap(x.wanted.outputs) > 1024 {
		x.inputs, x.wanted = nil, wanted{}
	}
	x.in.Release()
	exchanges.Put(x)
}

// closeWindows releases the client's shared memory regions.
func (x *exchange) closeWindows() {
	for _, w := range x.wanted.windows {
		w.Close()
	}
	clear(x.wanted.windows)
	x.wanted.windows = x.wanted.windows[:0]
}

func trim(b []byte) []byte {
	if cap(b) > scratchLimit {
		return nil
	}
	return b[:0]
}

// Infer serves an infer request.
//
// hot: a test counts its own allocations.
func (s *Service) Infer(w http.ResponseWriter, r *http.Request, p transport.Path) {
	if list := r.Header["Prefer"]; len(list) > 0 && s.Requests != nil {
		if wants := parsePrefer(list); wants.later {
			s.inferLater(w, r, p, wants)
			return
		}
	}
	s.inferNow(w, r, p)
}

// inferNow executes a request and responds with its result.
//
// hot: as Infer.
func (s *Service) inferNow(w http.ResponseWriter, r *http.Request, p transport.Path) {
	x := s.newExchange(r)
	defer x.release()
	s.Load.Begin()
	err := x.infer(w, r, p)
	s.Load.End(err)
	if err != nil {
		x.closeWindows()
		s.Load.SetHeader(w.Header(), r.Header)
		if x.parsing {
			w.Header()["Content-Type"] = transport.JSONType
		}
		s.Reject(w, r, err)
	}
}

func (x *exchange) infer(w http.ResponseWriter, r *http.Request, p transport.Path) error {
	x.req = infer.NewRequest()
	err := x.readInfer(w, r, p)
	x.received(r.Header)
	if err != nil {
		x.reject(p, err)
		return err
	}
	call, req := infer.NewCall(), x.req
	x.req = nil
	x.srv.Settings.Infer.Submit(r.Context(), req, call)
	resp, err := call.Wait()
	if err == nil && resp == nil {
		err = status.Errorf(status.Internal, "received an unexpected null response")
	}
	x.parsing = err != nil && notStarted(err)
	if err != nil {
		return err
	}
	defer resp.Release()
	if err := x.placeOutputs(resp); err != nil {
		return err
	}
	x.closeWindows()
	resp.Trace.Mark(tracing.HTTPSendStart)
	defer resp.Trace.Mark(tracing.HTTPSendEnd)
	x.in.Charge.Add(resp.Size())
	x.srv.Load.SetHeader(w.Header(), r.Header)
	return x.respond(w, r.Header, resp)
}

// readInfer decodes the request. A model that cannot serve it is reported before any error in the body, as in Triton.
func (x *exchange) readInfer(w http.ResponseWriter, r *http.Request, p transport.Path) error {
	if err := x.describe(p); err != nil {
		return err
	}
	if x.desc.Decoupled {
		return status.Errorf(status.Unsupported, "HTTP end point doesn't support models with decoupled transaction policy")
	}
	compressed, err := transport.Compressed(w, r)
	if err != nil {
		return err
	}
	if err := x.in.Open(w, r, compressed); err != nil {
		x.parsing = x.in.Oversized()
		return err
	}
	if err := x.decode(r.Header); err != nil {
		return err
	}
	if limit := r.Header[transport.TimeLimitHeader]; limit != nil {
		if err := x.req.SetTimeLimit(limit, telemetry.Now()); err != nil {
			return err
		}
	}
	return x.srv.ForwardHeaders(x.req, r)
}

// describe looks the model up and sets it in the request.
func (x *exchange) describe(p transport.Path) error {
	version, err := infer.ParseVersion(p.Version)
	if err != nil {
		return err
	}
	x.req.Model, x.req.Version = p.Model, version
	x.desc, err = x.srv.Catalog.Describe(p.Model, version)
	return err
}

// reject releases a request that cannot be submitted, and reports it to the tracer.
func (x *exchange) reject(p transport.Path, err error) {
	version := int64(0)
	if x.desc != nil {
		version = x.desc.Version
	}
	x.srv.Tracer.RecordRefusal(p.Model, version, x.req.ID, &x.req.Origin, err)
	x.req.Release()
	x.req = nil
}

// received records in the request what is known of it once it was read.
func (x *exchange) received(h http.Header) {
	x.span.End()
	x.srv.SetOrigin(x.req, h, x.span, x.in.Charge.Client(), "")
}

// notStarted reports whether err, by its code, is that of a request which no model has executed.
func notStarted(err error) bool {
	switch status.CodeOf(err) {
	case status.InvalidArg, status.NotFound, status.Unavailable, status.Unsupported, status.ResourceExhausted:
		return true
	default:
		return false
	}
}

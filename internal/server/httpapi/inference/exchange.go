package inference

import (
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/internal/server/httpapi/jsonwire"
	"github.com/tutti-server/tutti/internal/server/httpapi/transport"
	"github.com/tutti-server/tutti/internal/shm"
	"github.com/tutti-server/tutti/internal/tracing"
)

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
	scratch
}

// wanted is what a request says about its outputs.
type wanted struct {
	outputs []output // the outputs requested by name
	binary  bool     // how the other outputs are sent
	// windows are the open windows of inputs and outputs in shared memory. They are closed just before the response is sent, so
	// that a client which has the response can unregister its regions.
	windows []*shm.Window
}

// scratch is the memory that an exchange reuses.
type scratch struct {
	body    []byte // the request's JSON
	out     []byte // the response's JSON
	names   interned
	members []member // of a generate response
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
type field uint16

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

func (s *Service) newExchange() *exchange {
	x := exchanges.Get()
	x.srv, x.span = s, s.Tracer.Begin()
	x.in.Begin(s.Limits)
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
	for i, w := range x.wanted.windows {
		w.Close()
		x.wanted.windows[i] = nil
	}
	x.wanted.windows = x.wanted.windows[:0]
}

func trim(b []byte) []byte {
	if cap(b) > scratchLimit {
		return nil
	}
	return b[:0]
}

// interned holds recent names as strings, so that equal names of the next request cost no allocation.
type interned [32]string

// of returns b as a string.
//
// hot: no allocation for a recent name.
func (n *interned) of(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	if len(b) > 64 {
		return string(b)
	}
	slot := &n[(uint(len(b))*7+uint(b[0])+uint(b[len(b)-1])*5)%uint(len(n))]
	if *slot != string(b) {
		*slot = string(b)
	}
	return *slot
}

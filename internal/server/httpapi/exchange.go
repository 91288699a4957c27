package httpapi

import (
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/internal/shm"
	"github.com/tutti-server/tutti/internal/tracing"
)

// keepScratch bounds each piece of memory that one pooled exchange keeps between requests: enough for the buffer of a
// body of 1 MiB whose length was not known, which has doubled beyond it.
const keepScratch = 2 << 20

// exchange is one infer request's way from socket to socket: its scratch memory,
// and what the answer must know about the question.
type exchange struct {
	srv    *Server
	p      parser
	src    source
	zip    *inflater    // nil for a body that is not compressed
	came   tracing.Span // when the request was read
	charge infer.Charge // what it has in flight
	req    *infer.Request
	about  *infer.Description // of the version that is asked, nil until it is known
	// parsing says that what fails is in the request's body, or that the request is refused for what it asks.
	parsing bool
	body    []byte // the request's JSON
	out     []byte // the answer's JSON

	specs []spec // one per input
	wants []want // the outputs asked for by name
	// windows are those of the inputs and outputs in shared memory. Their regions are in use until just before the response
	// is sent, so that a client which has it can unregister them.
	windows []*shm.Window
	// binary says how outputs not asked for by name are sent.
	binary bool
	names  interned
	facts  []fact // of a generate answer
}

// spec is one input as the JSON describes it; its tensor goes to the request.
type spec struct {
	name   string
	dtype  tensor.DType
	shape  tensor.Shape
	have   field
	data   int   // offset of the JSON data, when it came before the shape or type
	size   int64 // binary_data_size
	region place
	tensor tensor.Tensor
}

// place is where in shared memory a tensor is.
type place struct {
	name         string
	offset, size uint64
}

// want is a requested output.
type want struct {
	name    string
	binary  bool
	classes uint64 // how many of the best classes are sent instead, 0 for the tensor itself
	region  place
	shared  bool        // the output goes to shared memory
	window  *shm.Window // one of the exchange's windows
}

// field says which members of an object have been seen.
type field uint16

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

// see notes a member and reports whether it is the first of its name: of two, the first counts.
func (f *field) see(m field) bool {
	if *f&m != 0 {
		return false
	}
	*f |= m
	return true
}

func (f field) has(m field) bool { return f&m != 0 }

var exchanges pool.Of[exchange]

func (s *Server) newExchange() *exchange {
	x := exchanges.Get()
	x.srv, x.came, x.charge = s, s.tracer.Begin(), s.inFlight.Charge()
	return x
}

// release returns x for reuse, without what a large request made it grow to.
func (x *exchange) release() {
	for i := range x.specs {
		x.specs[i].tensor.Release() // only after a failure: otherwise the request has it
	}
	x.closeWindows()
	if x.zip != nil {
		x.zip.release()
		x.zip = nil
	}
	x.src = source{}
	clear(x.specs)
	clear(x.wants)
	x.specs, x.wants = x.specs[:0], x.wants[:0]
	x.srv, x.req, x.about, x.parsing, x.binary, x.came = nil, nil, nil, false, false, tracing.Span{}
	x.p.begin(nil)
	x.body, x.out, x.p.text, x.p.open = trim(x.body), trim(x.out), trim(x.p.text), trim(x.p.open)
	if cap(x.specs) > 1024 || cap(x.wants) > 1024 {
		x.specs, x.wants, x.windows = nil, nil, nil
	}
	x.charge.Release()
	exchanges.Put(x)
}

// closeWindows lets go of the client's shared memory.
func (x *exchange) closeWindows() {
	for i, w := range x.windows {
		w.Close()
		x.windows[i] = nil
	}
	x.windows = x.windows[:0]
}

func trim(b []byte) []byte {
	if cap(b) > keepScratch {
		return nil
	}
	return b[:0]
}

// interned remembers recent names, so that a client that repeats itself costs no strings.
type interned [32]string

// of returns b as a string.
//
// hot: no allocation for a name seen lately.
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

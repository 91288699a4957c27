package grpcapi

import (
	"runtime"
	"strconv"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/internal/wire"
)

// response is a ModelInferResponse, alone or in a ModelStreamInferResponse. marshal consumes it.
type response struct {
	resp   *infer.Response
	shared []sharedOutput // the outputs in the client's memory
	conn   *connection    // that it is sent over; nil if nothing is limited
	stream bool
	// err is a stream's error_message. Beside it the inference response has at most an id.
	err string
	// final is a stream's triton_final_response.
	final bool

	// status ends a stream instead of this response.
	status error

	next *response // in a stream's queue
	size int       // bytes, as that queue counts them
}

var responses pool.Of[response]

// release releases the tensors and returns r to its pool.
func (r *response) release() {
	if r.resp != nil {
		r.resp.Release()
	}
	*r = response{shared: reuse(r.shared)}
	responses.Put(r)
}

// weigh returns what a response of a stream is charged until it is sent: the bytes of its tensors, and what it costs besides.
func (r *response) weigh() int {
	if r.size = refusalCost; len(r.resp.Outputs) > 0 {
		r.size = requestCost
	}
	for i := range r.resp.Outputs {
		r.size += r.resp.Outputs[i].Tensor.Len
	}
	return r.size
}

// prefix is the room for the fields before a stream's response.
const prefix = 16

// finalKey is the parameter of each streamed response.
const finalKey = "triton_final_response"

// estimate returns the approximate size of the message without large tensors; marshal grows a buffer that is too small.
func (r *response) estimate() int {
	n := wire.MinPooled + len(r.err) + 128*len(r.shared)
	for i := range r.resp.Outputs {
		out := &r.resp.Outputs[i]
		n += 64 + len(out.Name) + 10*out.Tensor.Shape.Rank()
		if out.Tensor.Len <= wire.InlineMax {
			n += out.Tensor.Len
		}
	}
	return n
}

// marshal encodes the message into one pooled buffer, with the memory of large tensors in between, and releases r.
// Those tensors stay in flight until they are written.
//
// hot: one allocation, the list of the pieces, and two for each large tensor.
func (r *response) marshal(f wire.Counter) mem.BufferSlice {
	if r.resp == nil {
		r.resp = infer.NewResponse()
	}
	defer r.release()
	if r.conn != nil {
		f = r.conn
	}
	base := mem.DefaultBufferPool()
	pool := base
	if r.resp.Trace != nil {
		pool = traced(pool, r.resp.Trace) // ends the trace when the buffer is freed, so it must see one buffer only
	}
	taken := base.Get(r.estimate())
	e := encoder{Encoder: wire.Encoder{B: (*taken)[:prefix]}, resp: r, inFlight: f}
	e.message()
	var cuts [8]wire.Cut
	body, large := e.contents(cuts[:0])
	start := prefix
	if r.stream {
		start = e.streamPrefix(body)
	}
	if cap(e.B) != cap(*taken) { // the estimate was too low
		base.Put(taken)
		grown := e.B
		taken = &grown
	} else {
		*taken = e.B
	}
	return wire.Split(mem.NewBuffer(taken, pool), start, len(e.B), large)
}

// encoder appends the fields of a response.
type encoder struct {
	wire.Encoder
	resp     *response
	inFlight wire.Counter
}

// message appends a ModelInferResponse without the contents.
func (e *encoder) message() {
	resp := e.resp.resp
	if e.resp.err == "" {
		e.Text(1, resp.Model)
		var digits [20]byte
		version := strconv.AppendInt(digits[:0], resp.Version, 10)
		e.Tag(2, protowire.BytesType)
		e.B = protowire.AppendBytes(e.B, version)
	}
	e.Text(3, resp.ID)
	if resp.Ensemble {
		e.sequence(&resp.Sequence)
	}
	for i := range resp.Params {
		e.Param(&resp.Params[i])
	}
	if e.resp.stream {
		e.Param(&infer.Param{Key: finalKey, Kind: infer.ParamBool, Bool: e.resp.final})
	}
	for i := range resp.Outputs {
		e.output(i)
	}
}

// sequence appends the sequence parameters that an ensemble echoes, as in Triton.
func (e *encoder) sequence(s *infer.Sequence) {
	id := infer.Param{Key: "sequence_id", Kind: infer.ParamInt, Int: int64(s.ID)} //nolint:gosec // as the bits are
	if s.Name != "" {
		id = infer.Param{Key: "sequence_id", Kind: infer.ParamString, String: s.Name}
	}
	e.Param(&id)
	e.Param(&infer.Param{Key: "sequence_start", Kind: infer.ParamBool, Bool: s.Start})
	e.Param(&infer.Param{Key: "sequence_end", Kind: infer.ParamBool, Bool: s.End})
}

// output appends the description of output i.
func (e *encoder) output(i int) {
	out := &e.resp.resp.Outputs[i]
	output := e.Begin(5)
	e.Text(1, out.Name)
	e.Text(2, out.Tensor.DType.String())
	e.Dims(3, out.Tensor.Shape.Dims())
	if s := e.shared(i); s != nil {
		e.Param(&infer.Param{Key: "shared_memory_region", Kind: infer.ParamString, String: s.name})
		e.Param(&infer.Param{Key: "shared_memory_byte_size", Kind: infer.ParamInt, Int: int64(s.size)})
		if s.offset > 0 {
			e.Param(&infer.Param{Key: "shared_memory_offset", Kind: infer.ParamInt, Int: int64(s.offset)})
		}
	}
	e.End(output)
}

// shared returns output i in the client's memory, or nil if it is not there.
func (e *encoder) shared(i int) *sharedOutput {
	for j := range e.resp.shared {
		if s := &e.resp.shared[j]; s.output == i {
			return s
		}
	}
	return nil
}

// contents appends the raw bytes of the outputs. Large tensors move to the list of cuts instead. It returns the
// size of the response including them.
func (e *encoder) contents(large []wire.Cut) (size int, cuts []wire.Cut) {
	extra := 0
	for i := range e.resp.resp.Outputs {
		t := &e.resp.resp.Outputs[i].Tensor
		n := t.Len
		if e.shared(i) != nil {
			n = 0
		}
		if n > wire.InlineMax {
			extra += n
		}
		large = e.Contents(6, t, n, e.inFlight, large)
	}
	return len(e.B) - prefix + extra, large
}

// streamPrefix wraps a response of this size in a ModelStreamInferResponse, using the room of prefix, and returns
// the start of the message. An error text goes after it.
func (e *encoder) streamPrefix(body int) int {
	var head [prefix]byte
	b := protowire.AppendTag(head[:0], 2, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(body))
	start := prefix - len(b)
	copy(e.B[start:], b)
	e.Text(1, e.resp.err) // there are no contents, so no cuts, beside an error
	return start
}

// sendTrace is the pool of a traced response's buffer. The transport returns the buffer when it is written.
type sendTrace struct {
	mem.BufferPool
	trace *tracing.Trace
	lost  runtime.Cleanup // ends the trace if the transport drops the response
}

// traced returns a pool that records when its buffer was sent.
func traced(pool mem.BufferPool, t *tracing.Trace) mem.BufferPool {
	t.Mark(tracing.GRPCSendStart)
	s := &sendTrace{BufferPool: pool, trace: t.Hold()}
	s.lost = runtime.AddCleanup(s, (*tracing.Trace).End, s.trace)
	return s
}

// Put returns the buffer.
func (s *sendTrace) Put(b *[]byte) {
	s.lost.Stop()
	s.trace.Mark(tracing.GRPCSendEnd)
	s.trace.End()
	s.BufferPool.Put(b)
	runtime.KeepAlive(s)
}

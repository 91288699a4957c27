package grpcapi

import (
	"math"
	"runtime"
	"strconv"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/internal/tracing"
)

// response is a ModelInferResponse, alone or in a ModelStreamInferResponse. marshal consumes it.
type response struct {
	resp   *infer.Response
	shared []sharedOutput // the outputs in the client's memory
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

// weigh returns the bytes of the tensors.
func (r *response) weigh() int {
	r.size = 0
	for i := range r.resp.Outputs {
		r.size += r.resp.Outputs[i].Tensor.Len
	}
	return r.size
}

const (
	// inlineMax is the size up to which a tensor is copied into the message: that is cheaper than passing its
	// memory on.
	inlineMax = 8 << 10
	// minPooled is the smallest buffer that the transport's pool reuses.
	minPooled = 2 << 10
	// prefix is the room for the fields before a stream's response.
	prefix = 16
)

// finalKey is the parameter of each streamed response.
const finalKey = "triton_final_response"

// estimate returns the approximate size of the message without large tensors; marshal grows a buffer that is too small.
func (r *response) estimate() int {
	n := minPooled + len(r.err) + 128*len(r.shared)
	for i := range r.resp.Outputs {
		out := &r.resp.Outputs[i]
		n += 64 + len(out.Name) + 10*out.Tensor.Shape.Rank()
		if out.Tensor.Len <= inlineMax {
			n += out.Tensor.Len
		}
	}
	return n
}

// marshal encodes the message into one pooled buffer, with the memory of large tensors in between, and releases r.
// Those tensors stay in flight until they are written.
//
// hot: one allocation, the list of the pieces, and two for each large tensor.
func (r *response) marshal(f *infer.InFlight) mem.BufferSlice {
	if r.resp == nil {
		r.resp = infer.NewResponse()
	}
	defer r.release()
	base := mem.DefaultBufferPool()
	pool := base
	if r.resp.Trace != nil {
		pool = traced(pool, r.resp.Trace) // ends the trace when the buffer is freed, so it must see one buffer only
	}
	taken := base.Get(r.estimate())
	e := encoder{b: (*taken)[:prefix], resp: r, inFlight: f}
	e.message()
	var cuts [8]cut
	body, large := e.contents(cuts[:0])
	start := prefix
	if r.stream {
		start = e.streamPrefix(body)
	}
	if cap(e.b) != cap(*taken) { // the estimate was too low
		base.Put(taken)
		grown := e.b
		taken = &grown
	} else {
		*taken = e.b
	}
	return split(mem.NewBuffer(taken, pool), start, len(e.b), large)
}

// cut is the position of a large tensor in the encoded bytes.
type cut struct {
	at     int
	tensor mem.Buffer
}

// split inserts large tensors at their positions.
func split(encoded mem.Buffer, start, end int, large []cut) mem.BufferSlice {
	out := make(mem.BufferSlice, 0, 2*len(large)+1)
	for i := range large {
		out = append(out, encoded.Slice(start, large[i].at), large[i].tensor)
		start = large[i].at
	}
	if start < end {
		out = append(out, encoded.Slice(start, end))
	}
	encoded.Free()
	return out
}

// encoder appends the fields of a response to b.
type encoder struct {
	b        []byte
	resp     *response
	inFlight *infer.InFlight
}

func (e *encoder) tag(num protowire.Number, typ protowire.Type) {
	e.b = protowire.AppendTag(e.b, num, typ)
}

func (e *encoder) varint(v uint64) { e.b = protowire.AppendVarint(e.b, v) }

// text appends a non-empty string field.
func (e *encoder) text(num protowire.Number, s string) {
	if s == "" {
		return
	}
	e.tag(num, protowire.BytesType)
	e.b = protowire.AppendString(e.b, s)
}

// message appends a ModelInferResponse without the contents.
func (e *encoder) message() {
	resp := e.resp.resp
	if e.resp.err == "" {
		e.text(1, resp.Model)
		var digits [20]byte
		version := strconv.AppendInt(digits[:0], resp.Version, 10)
		e.tag(2, protowire.BytesType)
		e.b = protowire.AppendBytes(e.b, version)
	}
	e.text(3, resp.ID)
	if resp.Ensemble {
		e.sequence(&resp.Sequence)
	}
	for i := range resp.Params {
		e.param(&resp.Params[i])
	}
	if e.resp.stream {
		e.param(&infer.Param{Key: finalKey, Kind: infer.ParamBool, Bool: e.resp.final})
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
	e.param(&id)
	e.param(&infer.Param{Key: "sequence_start", Kind: infer.ParamBool, Bool: s.Start})
	e.param(&infer.Param{Key: "sequence_end", Kind: infer.ParamBool, Bool: s.End})
}

// begin begins a nested message and returns its position for end.
func (e *encoder) begin(num protowire.Number) int {
	e.tag(num, protowire.BytesType)
	return len(e.b)
}

// end inserts the length of the message that began at a position. Nested messages are small, so that this costs less
// than to compute their lengths before.
func (e *encoder) end(at int) {
	n := len(e.b) - at
	e.varint(uint64(n))
	copy(e.b[len(e.b)-n:], e.b[at:at+n])
	protowire.AppendVarint(e.b[:at], uint64(n))
}

// param appends an entry of the parameter map.
func (e *encoder) param(p *infer.Param) {
	entry := e.begin(4)
	e.tag(1, protowire.BytesType)
	e.b = protowire.AppendString(e.b, p.Key)
	value := e.begin(2)
	switch p.Kind {
	case infer.ParamBool:
		e.tag(1, protowire.VarintType)
		e.varint(protowire.EncodeBool(p.Bool))
	case infer.ParamInt:
		e.tag(2, protowire.VarintType)
		e.varint(uint64(p.Int))
	case infer.ParamUint:
		e.tag(5, protowire.VarintType)
		e.varint(p.Uint)
	case infer.ParamDouble:
		e.tag(4, protowire.Fixed64Type)
		e.b = protowire.AppendFixed64(e.b, math.Float64bits(p.Double))
	case infer.ParamString:
		e.tag(3, protowire.BytesType)
		e.b = protowire.AppendString(e.b, p.String)
	}
	e.end(value)
	e.end(entry)
}

// output appends the description of output i.
func (e *encoder) output(i int) {
	out := &e.resp.resp.Outputs[i]
	output := e.begin(5)
	e.text(1, out.Name)
	e.text(2, out.Tensor.DType.String())
	if dims := out.Tensor.Shape.Dims(); len(dims) > 0 {
		list := e.begin(3)
		for _, d := range dims {
			e.varint(uint64(d))
		}
		e.end(list)
	}
	if s := e.shared(i); s != nil {
		e.param(&infer.Param{Key: "shared_memory_region", Kind: infer.ParamString, String: s.name})
		e.param(&infer.Param{Key: "shared_memory_byte_size", Kind: infer.ParamInt, Int: int64(s.size)})
		if s.offset > 0 {
			e.param(&infer.Param{Key: "shared_memory_offset", Kind: infer.ParamInt, Int: int64(s.offset)})
		}
	}
	e.end(output)
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
func (e *encoder) contents(large []cut) (size int, cuts []cut) {
	extra := 0
	for i := range e.resp.resp.Outputs {
		t := &e.resp.resp.Outputs[i].Tensor
		n := t.Len
		if e.shared(i) != nil {
			n = 0
		}
		e.tag(6, protowire.BytesType)
		e.varint(uint64(n))
		switch {
		case n == 0:
		case n <= inlineMax:
			e.b = append(e.b, t.Bytes()...)
		default:
			extra += n
			large = append(large, cut{at: len(e.b), tensor: handOver(t, e.inFlight)})
		}
	}
	return len(e.b) - prefix + extra, large
}

// streamPrefix wraps a response of this size in a ModelStreamInferResponse, using the room of prefix, and returns
// the start of the message. An error text goes after it.
func (e *encoder) streamPrefix(body int) int {
	var head [prefix]byte
	b := protowire.AppendTag(head[:0], 2, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(body))
	start := prefix - len(b)
	copy(e.b[start:], b)
	e.text(1, e.resp.err) // there are no contents, so no cuts, beside an error
	return start
}

// sentTensor is a tensor owned by the transport. It implements the buffer pool to which the transport returns the
// memory.
type sentTensor struct {
	mem.NopBufferPool
	data []byte
	lent sentMemory
	lost runtime.Cleanup
}

// sentMemory is what sentTensor releases.
type sentMemory struct {
	buffer   *tensor.Buffer
	inFlight *infer.InFlight
	size     int64
}

func (l sentMemory) end() {
	l.inFlight.Release(l.size)
	l.buffer.Release()
}

// handOver moves a tensor's memory to the transport, which returns it once it is written. A broken connection drops
// unwritten buffers without returning them; then a cleanup releases the memory when the sentTensor is garbage
// collected.
func handOver(t *tensor.Tensor, f *infer.InFlight) mem.Buffer {
	l := &sentTensor{data: t.Bytes(), lent: sentMemory{inFlight: f, size: int64(t.Len)}}
	f.Add(l.lent.size)
	l.lent.buffer = t.Move().Buf
	l.lost = runtime.AddCleanup(l, sentMemory.end, l.lent)
	return mem.NewBuffer(&l.data, l)
}

// Put releases the tensor's memory.
func (l *sentTensor) Put(*[]byte) {
	l.lost.Stop()
	ended := l.lent
	l.lent, l.data = sentMemory{}, nil
	runtime.KeepAlive(l)
	ended.end()
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

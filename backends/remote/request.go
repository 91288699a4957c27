package remote

import (
	"math"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/wire"
)

// codec is grpc's proto codec, except for the messages with tensors: requests pass the memory of their tensors on, and responses
// stay in the transport's buffers.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(proto.Name)} }

// Marshal encodes an inference request.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if r, ok := v.(*request); ok {
		return r.marshal(), nil
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal retains data if v is an inference response.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if r, ok := v.(*response); ok {
		r.keep(data)
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

// request is a ModelInferRequest of borrowed tensors.
type request struct {
	m       *model
	in      []tensor.Tensor
	outputs []string    // requested; nil for all that the far model has
	meta    *infer.Meta // nil for none
	id      string
}

// fill sets the request of a whole batch, or of one of its requests, with those inputs.
func (r *request) fill(members []backends.Request, in []tensor.Tensor) {
	r.in, r.meta, r.id = in, members[0].Meta, ""
	if len(members) == 1 && r.meta != nil {
		r.id = r.meta.ID
	}
	r.outputs = r.m.names
	if len(members) == 1 && len(members[0].RequestedOutputs) > 0 {
		r.outputs = members[0].RequestedOutputs
	}
}

// estimate returns the approximate size of the message without large tensors.
func (r *request) estimate() int {
	n := wire.MinPooled + len(r.id)
	for i := range r.in {
		n += 128 + 10*r.in[i].Shape.Rank()
		if r.in[i].Len <= wire.InlineMax {
			n += r.in[i].Len
		}
	}
	return n
}

// marshal encodes the message into one pooled buffer, with the memory of large tensors in between. Those stay in use until they
// are written, which may be after the end of the call.
//
// hot: one allocation, the list of the pieces, and two for each large tensor.
func (r *request) marshal() mem.BufferSlice {
	pool := mem.DefaultBufferPool()
	taken := pool.Get(r.estimate())
	e := wire.Encoder{B: (*taken)[:0]}
	r.head(&e)
	var cuts [8]wire.Cut
	large := cuts[:0]
	for i := range r.in {
		if r.in[i].Present() {
			t := r.in[i].Retain()
			large = e.Contents(7, &t, t.Len, nil, large)
			t.Release()
		}
	}
	if cap(e.B) != cap(*taken) { // the estimate was too low
		pool.Put(taken)
		grown := e.B
		taken = &grown
	} else {
		*taken = e.B
	}
	return wire.Split(mem.NewBuffer(taken, pool), 0, len(e.B), large)
}

// head appends everything but the contents.
func (r *request) head(e *wire.Encoder) {
	e.Text(1, r.m.set.model)
	e.Text(2, r.m.set.version)
	e.Text(3, r.id)
	if r.meta != nil {
		appendParams(e, r.meta)
	}
	for i := range r.in {
		t := &r.in[i]
		if !t.Present() {
			continue
		}
		in := e.Begin(5)
		e.Text(1, r.m.Sig.Inputs[i].Name)
		e.Text(2, t.DType.String())
		e.Dims(3, t.Shape.Dims())
		e.End(in)
	}
	for _, name := range r.outputs {
		out := e.Begin(6)
		e.Text(1, name)
		e.End(out)
	}
}

// appendParams appends the parameters of a request: sequence, priority, remaining timeout, and those that the client sent.
func appendParams(e *wire.Encoder, m *infer.Meta) {
	if s := &m.Sequence; s.ID != 0 || s.Name != "" {
		id := infer.Param{Key: "sequence_id", Kind: infer.ParamInt, Int: int64(s.ID)} //nolint:gosec // as the bits are
		if s.Name != "" {
			id = infer.Param{Key: "sequence_id", Kind: infer.ParamString, String: s.Name}
		}
		e.Param(&id)
		e.Param(&infer.Param{Key: "sequence_start", Kind: infer.ParamBool, Bool: s.Start})
		e.Param(&infer.Param{Key: "sequence_end", Kind: infer.ParamBool, Bool: s.End})
	}
	if m.Priority > 0 {
		e.Param(&infer.Param{Key: "priority", Kind: infer.ParamInt, Int: int64(min(m.Priority, math.MaxInt64))}) //nolint:gosec // bounded
	}
	if m.Timeout > 0 {
		e.Param(&infer.Param{Key: "timeout", Kind: infer.ParamInt, Int: left(m)})
	}
	for i := range m.Params {
		e.Param(&m.Params[i])
	}
}

// left returns the remaining timeout of a request in microseconds, at least 1.
func left(m *infer.Meta) int64 {
	n := int64(min(m.Timeout, math.MaxInt64)) //nolint:gosec // bounded
	if m.Arrived > 0 {
		n -= (telemetry.Now() - m.Arrived) / 1000
	}
	return max(n, 1)
}

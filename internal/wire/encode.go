package wire

import (
	"math"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
)

const (
	// InlineMax is the size up to which a tensor is copied into the message: that is cheaper than passing its
	// memory on.
	InlineMax = 8 << 10
	// MinPooled is the smallest buffer that the transport's pool reuses.
	MinPooled = 2 << 10
)

// Cut is the position of a large tensor in the encoded bytes.
type Cut struct {
	At     int
	Tensor mem.Buffer
}

// Split returns the encoded bytes from start to end with the large tensors at their positions. It consumes encoded.
func Split(encoded mem.Buffer, start, end int, large []Cut) mem.BufferSlice {
	out := make(mem.BufferSlice, 0, 2*len(large)+1)
	for i := range large {
		out = append(out, encoded.Slice(start, large[i].At), large[i].Tensor)
		start = large[i].At
	}
	if start < end {
		out = append(out, encoded.Slice(start, end))
	}
	encoded.Free()
	return out
}

// Encoder appends the fields of a message to B.
type Encoder struct{ B []byte }

// Tag appends the number and type of a field.
func (e *Encoder) Tag(num protowire.Number, typ protowire.Type) {
	e.B = protowire.AppendTag(e.B, num, typ)
}

// Varint appends a varint.
func (e *Encoder) Varint(v uint64) { e.B = protowire.AppendVarint(e.B, v) }

// Text appends a non-empty string field.
func (e *Encoder) Text(num protowire.Number, s string) {
	if s == "" {
		return
	}
	e.Tag(num, protowire.BytesType)
	e.B = protowire.AppendString(e.B, s)
}

// Begin begins a nested message and returns its position for End.
func (e *Encoder) Begin(num protowire.Number) int {
	e.Tag(num, protowire.BytesType)
	return len(e.B)
}

// End inserts the length of the message that began at a position. Nested messages are small, so that this costs less
// than to compute their lengths before.
func (e *Encoder) End(at int) {
	n := len(e.B) - at
	e.Varint(uint64(n))
	copy(e.B[len(e.B)-n:], e.B[at:at+n])
	protowire.AppendVarint(e.B[:at], uint64(n))
}

// Dims appends the packed dimensions of a tensor.
func (e *Encoder) Dims(num protowire.Number, dims []int64) {
	if len(dims) == 0 {
		return
	}
	list := e.Begin(num)
	for _, d := range dims {
		e.Varint(uint64(d))
	}
	e.End(list)
}

// Contents appends raw contents: the first n bytes of t. Large ones are handed over, which consumes t, and their position is
// added to list. f counts them while they are in flight; it may be nil.
func (e *Encoder) Contents(num protowire.Number, t *tensor.Tensor, n int, f Counter, list []Cut) []Cut {
	e.Tag(num, protowire.BytesType)
	e.Varint(uint64(n))
	switch {
	case n == 0:
	case n <= InlineMax:
		e.B = append(e.B, t.Bytes()...)
	default:
		list = append(list, Cut{At: len(e.B), Tensor: HandOver(t, f)})
	}
	return list
}

// Param appends an entry of the parameter map.
func (e *Encoder) Param(p *infer.Param) {
	entry := e.Begin(4)
	e.Tag(1, protowire.BytesType)
	e.B = protowire.AppendString(e.B, p.Key)
	value := e.Begin(2)
	switch p.Kind {
	case infer.ParamBool:
		e.Tag(1, protowire.VarintType)
		e.Varint(protowire.EncodeBool(p.Bool))
	case infer.ParamInt:
		e.Tag(2, protowire.VarintType)
		e.Varint(uint64(p.Int))
	case infer.ParamUint:
		e.Tag(5, protowire.VarintType)
		e.Varint(p.Uint)
	case infer.ParamDouble:
		e.Tag(4, protowire.Fixed64Type)
		e.B = protowire.AppendFixed64(e.B, math.Float64bits(p.Double))
	case infer.ParamString:
		e.Tag(3, protowire.BytesType)
		e.B = protowire.AppendString(e.B, p.String)
	}
	e.End(value)
	e.End(entry)
}

package python

import (
	"encoding/binary"
	"math"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
)

const (
	requestStart uint32 = 1 << iota
	requestEnd
	requestNamed
	requestMany
)

const (
	requestBytes = 40
	partBytes    = 24
)

// appendRequest encodes a request without its inputs. appendExtra sets the size of the extra part.
func appendRequest(b []byte, m *infer.Meta, inputs int) []byte {
	var id, priority, timeout uint64
	var flags uint32
	if m != nil {
		id, priority, timeout = m.Sequence.ID, m.Priority, m.Timeout
		if m.Sequence.Start {
			flags |= requestStart
		}
		if m.Sequence.End {
			flags |= requestEnd
		}
		if m.Sequence.Name != "" {
			flags |= requestNamed
		}
	}
	b = binary.LittleEndian.AppendUint64(b, id)
	b = binary.LittleEndian.AppendUint64(b, priority)
	b = binary.LittleEndian.AppendUint64(b, timeout)
	b = binary.LittleEndian.AppendUint32(b, flags)
	b = binary.LittleEndian.AppendUint16(b, uint16(inputs))
	return append(b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
}

var noMeta infer.Meta

// appendExtra appends the extra part to the request that begins at offset at, unless all its fields have their defaults.
func appendExtra(b []byte, at int, q *backends.Request) []byte {
	m := q.Meta
	if m == nil {
		m = &noMeta
	}
	trace := q.Trace.Carrier(q.Step, q.SubRun)
	if m.ID == "" && m.Sequence.Name == "" && len(m.Params) == 0 && len(q.RequestedOutputs) == 0 && trace == "" {
		return b
	}
	from := len(b)
	b = appendText(b, m.ID)
	b = appendText(b, m.Sequence.Name)
	b = appendParams(b, m.Params)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(q.RequestedOutputs)))
	for _, name := range q.RequestedOutputs {
		b = appendText(b, name)
	}
	b = appendText(b, trace)
	for (len(b)-from)%8 != 0 {
		b = append(b, 0)
	}
	binary.LittleEndian.PutUint32(b[at+32:], uint32(len(b)-from))
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(s))), s...)
}

func appendParams(b []byte, list infer.Params) []byte {
	n := min(len(list), math.MaxUint16)
	b = binary.LittleEndian.AppendUint16(b, uint16(n))
	for i := range list[:n] {
		p := &list[i]
		b = appendText(b, p.Key)
		b = append(b, byte(p.Kind))
		switch p.Kind {
		case infer.ParamBool:
			v := uint64(0)
			if p.Bool {
				v = 1
			}
			b = binary.LittleEndian.AppendUint64(b, v)
		case infer.ParamInt:
			b = binary.LittleEndian.AppendUint64(b, uint64(p.Int))
		case infer.ParamUint:
			b = binary.LittleEndian.AppendUint64(b, p.Uint)
		case infer.ParamDouble:
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(p.Double))
		case infer.ParamString:
			b = appendText(b, p.String)
		}
	}
	return b
}

// appendPart encodes the description of a tensor. first replaces the first dimension unless it is negative.
func appendPart(b []byte, index int, t *tensor.Tensor, first int64, off, size int) []byte {
	dims := t.Shape.Dims()
	b = binary.LittleEndian.AppendUint16(b, uint16(index))
	b = append(b, byte(t.DType), byte(len(dims)), 0, 0, 0, 0)
	b = binary.LittleEndian.AppendUint64(b, uint64(off))
	b = binary.LittleEndian.AppendUint64(b, uint64(size))
	for i, d := range dims {
		if i == 0 && first >= 0 {
			d = first
		}
		b = binary.LittleEndian.AppendUint64(b, uint64(d))
	}
	return b
}

// aligned returns the next offset at which a tensor may begin.
func aligned(n int) int { return (n + align - 1) &^ (align - 1) }

// inputBytes returns the size of the region that the inputs of a batch need.
func inputBytes(b *backends.Batch) int {
	n := 0
	for i := range b.In {
		if b.In[i].Present() {
			n = aligned(n + b.In[i].Len)
		}
	}
	return n
}

// cursor is the position of the next request's rows in an input.
type cursor struct {
	off  int
	rest []byte // of BYTES
}

// rows returns the offset and size of a request's rows in the region, and advances.
func (c *cursor) rows(t *tensor.Tensor, batchRows, rows int) (off, size int) {
	off = c.off
	switch {
	case rows == batchRows:
		size = t.Len
	case t.DType == tensor.Bytes:
		size = c.elements(t.Shape.Elements() / int64(batchRows) * int64(rows))
	default:
		size = t.Len / batchRows * rows
	}
	c.off += size
	return off, size
}

// elements skips n BYTES elements and returns their size.
func (c *cursor) elements(n int64) int {
	before := len(c.rest)
	for range n {
		_, rest, ok := tensor.NextBytes(c.rest)
		if !ok {
			break
		}
		c.rest = rest
	}
	return before - len(c.rest)
}

// Package wire reads and writes the protobuf messages of KServe v2 that carry tensors, ModelInferRequest and
// ModelInferResponse, without the copies and allocations of generated code. The gRPC front end uses it as a server, and the
// backend remote as a client. See docs/decisions/023.
//
//   - cursor.go: the top level of a message, in the transport's buffers
//   - fields.go, params.go, contents.go: nested messages, in contiguous memory
//   - encode.go: writing; sent.go: tensors whose memory the transport borrows
package wire

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// ErrMalformed is returned for bytes that are not a valid message. It has no detail: clients cannot act on it, and a
// correct encoder never causes it.
var ErrMalformed = errors.New("cannot parse invalid wire-format data")

// Span is the position of a field's bytes, which may span several buffers.
type Span struct {
	chunk, off int // start
	N          int // its size in bytes
}

// Cursor reads the top level of a message from the transport's buffers. Its results are valid while the buffers are
// retained.
type Cursor struct {
	data  mem.BufferSlice
	chunk int    // the buffer that cur belongs to
	cur   []byte // the rest of it, never empty before the message's end
	arena []byte // copies of fields that span buffers, reused
	read  int    // bytes so far
}

// keepArena bounds the memory that a Cursor keeps for reuse.
const keepArena = 64 << 10

// Start begins at the first byte of a message.
func (c *Cursor) Start(data mem.BufferSlice) {
	c.data, c.chunk, c.cur, c.read = data, -1, nil, 0
	if cap(c.arena) > keepArena {
		c.arena = nil
	}
	c.arena = c.arena[:0]
	c.next()
}

// Reset forgets the buffers, which may then be released.
func (c *Cursor) Reset() { c.data, c.cur = nil, nil }

// next advances to the next non-empty buffer if the current one is used up.
func (c *Cursor) next() {
	for len(c.cur) == 0 && c.chunk+1 < len(c.data) {
		c.chunk++
		c.cur = c.data[c.chunk].ReadOnlyData()
	}
}

// Done reports whether the message is read to its end.
func (c *Cursor) Done() bool { return len(c.cur) == 0 }

// Varint reads a varint, across buffers if necessary.
//
// hot: no allocation.
func (c *Cursor) Varint() (uint64, error) {
	if v, n := protowire.ConsumeVarint(c.cur); n >= 0 {
		c.advance(n)
		return v, nil
	}
	v, err := binary.ReadUvarint(c)
	if err != nil {
		return 0, ErrMalformed
	}
	return v, nil
}

// ReadByte reads the next byte.
func (c *Cursor) ReadByte() (byte, error) {
	if c.Done() {
		return 0, ErrMalformed
	}
	b := c.cur[0]
	c.advance(1)
	return b, nil
}

// Pos returns the number of bytes that were read.
func (c *Cursor) Pos() int { return c.read }

// Enter reads the length of a nested message, whose fields follow, and returns the position of its end.
func (c *Cursor) Enter() (end int, err error) {
	n, err := c.Varint()
	if err != nil || n > math.MaxInt32 {
		return 0, ErrMalformed
	}
	return c.read + int(n), nil
}

func (c *Cursor) advance(n int) {
	c.read += n
	c.cur = c.cur[n:]
	c.next()
}

// Tag reads the number and type of the next field.
func (c *Cursor) Tag() (protowire.Number, protowire.Type, error) {
	v, err := c.Varint()
	if err != nil {
		return 0, 0, err
	}
	return splitTag(v)
}

func splitTag(v uint64) (protowire.Number, protowire.Type, error) {
	num := v >> 3
	if num < uint64(protowire.MinValidNumber) || num > uint64(protowire.MaxValidNumber) {
		return 0, 0, ErrMalformed
	}
	return protowire.Number(num), protowire.Type(v & 7), nil
}

// Span skips a length-delimited field and returns its position.
func (c *Cursor) Span() (Span, error) {
	n, err := c.Varint()
	if err != nil {
		return Span{}, err
	}
	s := Span{chunk: c.chunk, N: int(n)}
	if !c.Done() {
		s.off = c.data[c.chunk].Len() - len(c.cur)
	}
	for n > 0 {
		if c.Done() {
			return Span{}, ErrMalformed
		}
		k := min(n, uint64(len(c.cur)))
		n -= k
		c.advance(int(k))
	}
	return s, nil
}

// Bytes returns a span as contiguous memory, without a copy if it lies in one buffer.
func (c *Cursor) Bytes(s Span) []byte {
	if s.N == 0 {
		return nil
	}
	if b := c.data[s.chunk].ReadOnlyData()[s.off:]; len(b) >= s.N {
		return b[:s.N:s.N]
	}
	start := len(c.arena)
	if cap(c.arena)-start < s.N {
		// Earlier fields keep their memory.
		c.arena, start = make([]byte, 0, max(2*cap(c.arena), s.N)), 0
	}
	c.arena = c.arena[:start+s.N]
	out := c.arena[start:]
	c.Copy(out, s)
	return out[:s.N:s.N]
}

// Copy fills dst with the first bytes of a span.
//
// hot: the one copy that a tensor's bytes are given.
func (c *Cursor) Copy(dst []byte, s Span) {
	off := s.off
	for i := s.chunk; len(dst) > 0; i++ {
		n := copy(dst, c.data[i].ReadOnlyData()[off:])
		dst, off = dst[n:], 0
	}
}

// Skip skips the value of an unknown field.
func (c *Cursor) Skip(num protowire.Number, typ protowire.Type) (err error) {
	switch typ {
	case protowire.VarintType:
		_, err = c.Varint()
	case protowire.BytesType:
		_, err = c.Span()
	default:
		c.join()
		n := protowire.ConsumeFieldValue(num, typ, c.cur)
		if n < 0 {
			return ErrMalformed
		}
		c.advance(n)
	}
	return err
}

// join makes the rest of the message contiguous. Only unusual encodings need it.
func (c *Cursor) join() {
	if c.chunk+1 >= len(c.data) {
		return
	}
	rest := slices.Concat(c.cur, c.data[c.chunk+1:].Materialize())
	// Spans found so far keep their buffers; the rest is appended.
	c.chunk, c.data, c.cur = len(c.data), append(slices.Clip(c.data), mem.SliceBuffer(rest)), rest
	c.next()
}

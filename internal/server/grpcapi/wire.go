package grpcapi

import (
	"errors"
	"unicode/utf8"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// errWire says that bytes are no protobuf message of the expected type. The reason
// is not told: no client can act on it, and a good encoder never gets here.
var errWire = errors.New("cannot parse invalid wire-format data")

// span is a field's bytes, which may lie in several of the transport's buffers.
type span struct {
	chunk, off int // where it begins
	n          int
}

// cursor reads the top level of a message from the transport's buffers. What it
// returns is valid while these are held.
type cursor struct {
	data  mem.BufferSlice
	chunk int    // the buffer that cur is the rest of
	cur   []byte // never empty before the message's end
	arena []byte // fields that were put together, kept for reuse
}

// keepArena bounds the memory that a cursor keeps for reuse.
const keepArena = 64 << 10

func (c *cursor) start(data mem.BufferSlice) {
	c.data, c.chunk, c.cur = data, -1, nil
	if cap(c.arena) > keepArena {
		c.arena = nil
	}
	c.arena = c.arena[:0]
	c.next()
}

// next goes on to the next buffer that has bytes, when the current one has none left.
func (c *cursor) next() {
	for len(c.cur) == 0 && c.chunk+1 < len(c.data) {
		c.chunk++
		c.cur = c.data[c.chunk].ReadOnlyData()
	}
}

func (c *cursor) done() bool { return len(c.cur) == 0 }

// varint reads one, across buffers if need be.
//
// hot: no allocation.
func (c *cursor) varint() (uint64, error) {
	if v, n := protowire.ConsumeVarint(c.cur); n >= 0 {
		c.advance(n)
		return v, nil
	}
	var whole [10]byte
	for i := range whole {
		if c.done() {
			return 0, errWire
		}
		b := c.cur[0]
		c.advance(1)
		whole[i] = b
		if b < 0x80 {
			v, n := protowire.ConsumeVarint(whole[:i+1])
			if n < 0 {
				return 0, errWire
			}
			return v, nil
		}
	}
	return 0, errWire
}

func (c *cursor) advance(n int) {
	c.cur = c.cur[n:]
	c.next()
}

// tag reads the number and the type of the next field.
func (c *cursor) tag() (protowire.Number, protowire.Type, error) {
	v, err := c.varint()
	if err != nil {
		return 0, 0, err
	}
	return splitTag(v)
}

func splitTag(v uint64) (protowire.Number, protowire.Type, error) {
	num := v >> 3
	if num < uint64(protowire.MinValidNumber) || num > uint64(protowire.MaxValidNumber) {
		return 0, 0, errWire
	}
	return protowire.Number(num), protowire.Type(v & 7), nil
}

// span skips a length-delimited field and returns where it is.
func (c *cursor) span() (span, error) {
	n, err := c.varint()
	if err != nil {
		return span{}, err
	}
	s := span{chunk: c.chunk, n: int(n)}
	if !c.done() {
		s.off = c.data[c.chunk].Len() - len(c.cur)
	}
	for n > 0 {
		if c.done() {
			return span{}, errWire
		}
		k := min(n, uint64(len(c.cur)))
		n -= k
		c.advance(int(k))
	}
	return s, nil
}

// field reads a length-delimited field as one piece of memory.
func (c *cursor) field() ([]byte, error) {
	s, err := c.span()
	if err != nil {
		return nil, err
	}
	return c.bytes(s), nil
}

// bytes returns a span as one piece: the transport's memory when it is one there.
func (c *cursor) bytes(s span) []byte {
	if s.n == 0 {
		return nil
	}
	if b := c.data[s.chunk].ReadOnlyData()[s.off:]; len(b) >= s.n {
		return b[:s.n:s.n]
	}
	start := len(c.arena)
	if cap(c.arena)-start < s.n {
		// What earlier fields got stays where it is.
		c.arena, start = make([]byte, 0, max(2*cap(c.arena), s.n)), 0
	}
	c.arena = c.arena[:start+s.n]
	out := c.arena[start:]
	c.copy(out, s)
	return out[:s.n:s.n]
}

// copy fills dst with the first bytes of a span.
//
// hot: the one copy that a tensor's bytes are given.
func (c *cursor) copy(dst []byte, s span) {
	off := s.off
	for i := s.chunk; len(dst) > 0; i++ {
		n := copy(dst, c.data[i].ReadOnlyData()[off:])
		dst, off = dst[n:], 0
	}
}

// skip passes over the value of a field that is not known.
func (c *cursor) skip(num protowire.Number, typ protowire.Type) (err error) {
	switch typ {
	case protowire.VarintType:
		_, err = c.varint()
	case protowire.BytesType:
		_, err = c.span()
	default:
		c.join()
		n := protowire.ConsumeFieldValue(num, typ, c.cur)
		if n < 0 {
			return errWire
		}
		c.advance(n)
	}
	return err
}

// join makes one piece of the rest of the message. Only what no client sends needs it.
func (c *cursor) join() {
	if c.chunk+1 >= len(c.data) {
		return
	}
	rest := append([]byte(nil), c.cur...)
	for _, b := range c.data[c.chunk+1:] {
		rest = append(rest, b.ReadOnlyData()...)
	}
	// Spans found so far keep their buffers; the rest goes after all of them.
	data := append(mem.BufferSlice(nil), c.data...)
	data = append(data, mem.SliceBuffer(rest))
	c.data, c.chunk, c.cur = data, len(data)-1, rest
	c.next()
}

// fields reads the fields of a nested message, in one piece, one after the other.
type fields struct {
	rest []byte
	num  protowire.Number
	typ  protowire.Type
	err  error
}

// next reads the next tag. It reports false at the end and after an error.
//
// hot: no allocation.
func (f *fields) next() bool {
	if f.err != nil || len(f.rest) == 0 {
		return false
	}
	v, n := protowire.ConsumeVarint(f.rest)
	if n < 0 {
		f.err = errWire
		return false
	}
	f.rest = f.rest[n:]
	f.num, f.typ, f.err = splitTag(v)
	return f.err == nil
}

// is reports whether the field at hand has this number and type. One of another type
// is an unknown field.
func (f *fields) is(num protowire.Number, typ protowire.Type) bool {
	return f.num == num && f.typ == typ
}

func (f *fields) take(n int) bool {
	if n < 0 {
		f.err = errWire
		return false
	}
	f.rest = f.rest[n:]
	return true
}

func (f *fields) varint() uint64 {
	v, n := protowire.ConsumeVarint(f.rest)
	if !f.take(n) {
		return 0
	}
	return v
}

func (f *fields) fixed64() uint64 {
	v, n := protowire.ConsumeFixed64(f.rest)
	if !f.take(n) {
		return 0
	}
	return v
}

func (f *fields) bytes() []byte {
	v, n := protowire.ConsumeBytes(f.rest)
	if !f.take(n) {
		return nil
	}
	return v
}

// text is bytes that must be UTF-8.
func (f *fields) text() []byte {
	b := f.bytes()
	if !utf8.Valid(b) {
		f.err = errWire
	}
	return b
}

func (f *fields) skip() { f.take(protowire.ConsumeFieldValue(f.num, f.typ, f.rest)) }

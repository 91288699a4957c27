package grpcapi

import (
	"cmp"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"unicode/utf8"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tutti-server/tutti/core/tensor"
)

// errWire is returned for bytes that are not a valid message. It has no detail: clients cannot act on it, and a
// correct encoder never causes it.
var errWire = errors.New("cannot parse invalid wire-format data")

// wireSpan is the position of a field's bytes, which may span several buffers.
type wireSpan struct {
	chunk, off int // start
	n          int
}

// cursor reads the top level of a message from the transport's buffers. Its results are valid while the buffers are
// retained.
type cursor struct {
	data  mem.BufferSlice
	chunk int    // the buffer that cur belongs to
	cur   []byte // the rest of it, never empty before the message's end
	arena []byte // copies of fields that span buffers, reused
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

// next advances to the next non-empty buffer if the current one is used up.
func (c *cursor) next() {
	for len(c.cur) == 0 && c.chunk+1 < len(c.data) {
		c.chunk++
		c.cur = c.data[c.chunk].ReadOnlyData()
	}
}

func (c *cursor) done() bool { return len(c.cur) == 0 }

// varint reads a varint, across buffers if necessary.
//
// hot: no allocation.
func (c *cursor) varint() (uint64, error) {
	if v, n := protowire.ConsumeVarint(c.cur); n >= 0 {
		c.advance(n)
		return v, nil
	}
	v, err := binary.ReadUvarint(c)
	if err != nil {
		return 0, errWire
	}
	return v, nil
}

// ReadByte reads the next byte.
func (c *cursor) ReadByte() (byte, error) {
	if c.done() {
		return 0, errWire
	}
	b := c.cur[0]
	c.advance(1)
	return b, nil
}

func (c *cursor) advance(n int) {
	c.cur = c.cur[n:]
	c.next()
}

// tag reads the number and type of the next field.
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

// span skips a length-delimited field and returns its position.
func (c *cursor) span() (wireSpan, error) {
	n, err := c.varint()
	if err != nil {
		return wireSpan{}, err
	}
	s := wireSpan{chunk: c.chunk, n: int(n)}
	if !c.done() {
		s.off = c.data[c.chunk].Len() - len(c.cur)
	}
	for n > 0 {
		if c.done() {
			return wireSpan{}, errWire
		}
		k := min(n, uint64(len(c.cur)))
		n -= k
		c.advance(int(k))
	}
	return s, nil
}

// bytes returns a span as contiguous memory, without a copy if it lies in one buffer.
func (c *cursor) bytes(s wireSpan) []byte {
	if s.n == 0 {
		return nil
	}
	if b := c.data[s.chunk].ReadOnlyData()[s.off:]; len(b) >= s.n {
		return b[:s.n:s.n]
	}
	start := len(c.arena)
	if cap(c.arena)-start < s.n {
		// Earlier fields keep their memory.
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
func (c *cursor) copy(dst []byte, s wireSpan) {
	off := s.off
	for i := s.chunk; len(dst) > 0; i++ {
		n := copy(dst, c.data[i].ReadOnlyData()[off:])
		dst, off = dst[n:], 0
	}
}

// skip skips the value of an unknown field.
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

// join makes the rest of the message contiguous. Only unusual encodings need it.
func (c *cursor) join() {
	if c.chunk+1 >= len(c.data) {
		return
	}
	rest := slices.Concat(c.cur, c.data[c.chunk+1:].Materialize())
	// Spans found so far keep their buffers; the rest is appended.
	c.chunk, c.data, c.cur = len(c.data), append(slices.Clip(c.data), mem.SliceBuffer(rest)), rest
	c.next()
}

// fields iterates over the fields of a nested message in contiguous memory.
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

// is reports whether the current field has this number and type. A field with another type is unknown.
func (f *fields) is(num protowire.Number, typ protowire.Type) bool {
	return f.num == num && f.typ == typ
}

// take moves behind a value of n bytes; protowire returns a negative n, and the zero value, for a malformed one.
func (f *fields) take(n int) {
	if n < 0 {
		f.err = errWire
		return
	}
	f.rest = f.rest[n:]
}

func (f *fields) varint() uint64 {
	v, n := protowire.ConsumeVarint(f.rest)
	f.take(n)
	return v
}

func (f *fields) fixed64() uint64 {
	v, n := protowire.ConsumeFixed64(f.rest)
	f.take(n)
	return v
}

func (f *fields) bytes() []byte {
	v, n := protowire.ConsumeBytes(f.rest)
	f.take(n)
	return v
}

// text returns bytes that must be UTF-8.
func (f *fields) text() []byte {
	b := f.bytes()
	if !utf8.Valid(b) {
		f.err = errWire
	}
	return b
}

func (f *fields) skip() { f.take(protowire.ConsumeFieldValue(f.num, f.typ, f.rest)) }

// contentFields describes the fields of InferTensorContents, by number.
var contentFields = [...]struct {
	dtype tensor.DType   // the widest of its types
	typ   protowire.Type // of one element outside a packed list
	size  int            // bytes of an element on the wire, if that is fixed
}{
	1: {tensor.Bool, protowire.VarintType, 0},
	2: {tensor.Int32, protowire.VarintType, 0},
	3: {tensor.Int64, protowire.VarintType, 0},
	4: {tensor.Uint32, protowire.VarintType, 0},
	5: {tensor.Uint64, protowire.VarintType, 0},
	6: {tensor.FP32, protowire.Fixed32Type, 4},
	7: {tensor.FP64, protowire.Fixed64Type, 8},
	8: {tensor.Bytes, protowire.BytesType, 0},
}

// fieldOf has the field number for each type's elements, or 0 if there is none.
var fieldOf = [tensor.BF16 + 1]protowire.Number{
	tensor.Bool: 1, tensor.Int8: 2, tensor.Int16: 2, tensor.Int32: 2, tensor.Int64: 3, tensor.Uint8: 4, tensor.Uint16: 4,
	tensor.Uint32: 4, tensor.Uint64: 5, tensor.FP32: 6, tensor.FP64: 7, tensor.Bytes: 8,
}

// counts has the number of elements in each field of typed contents, and the size of BYTES elements with their
// lengths.
type counts struct {
	n     [len(contentFields)]int
	bytes int
}

// countContents validates and counts InferTensorContents.
//
// hot: no allocation.
func countContents(b []byte) (c counts, err error) {
	f := fields{rest: b}
	for f.next() {
		switch {
		case f.num < 1 || int(f.num) >= len(contentFields):
			f.skip()
		case f.typ == protowire.BytesType && f.num == 8:
			c.n[8]++
			c.bytes += tensor.EncodedLen(len(f.bytes()))
		case f.typ == protowire.BytesType:
			list := fields{rest: f.bytes()}
			if size := contentFields[f.num].size; size > 0 {
				if len(list.rest)%size != 0 {
					f.err = errWire
				}
				c.n[f.num] += len(list.rest) / size
				continue
			}
			for len(list.rest) > 0 && list.err == nil {
				list.varint()
				c.n[f.num]++
			}
			f.err = cmp.Or(f.err, list.err)
		case f.typ == contentFields[f.num].typ:
			c.n[f.num]++
			f.skip()
		default:
			f.skip()
		}
	}
	return c, f.err
}

// fillContents writes the elements of t's field into t, which must have room for exactly them. countContents must
// have validated b.
//
// hot: no allocation.
func fillContents(b []byte, t *tensor.Tensor) {
	num, dst, size := fieldOf[t.DType], t.Bytes(), t.DType.Size()
	one := contentFields[num]
	f := fields{rest: b}
	for f.next() {
		switch {
		case f.num != num:
			f.skip()
		case num == 8 && f.typ == one.typ:
			e := f.bytes()
			binary.LittleEndian.PutUint32(dst, uint32(len(e)))
			dst = dst[4+copy(dst[4:], e):]
		case f.typ == protowire.BytesType && one.size > 0:
			dst = dst[copy(dst, f.bytes()):]
		case f.typ == protowire.BytesType:
			list := fields{rest: f.bytes()}
			for len(list.rest) > 0 {
				dst = appendElement(dst, t.DType, size, list.varint())
			}
		case f.typ == one.typ && one.size > 0:
			dst = dst[copy(dst, f.rest[:one.size]):]
			f.take(one.size)
		case f.typ == one.typ:
			dst = appendElement(dst, t.DType, size, f.varint())
		default:
			f.skip()
		}
	}
}

// appendElement writes one element and returns the memory after it. A number that is too large keeps its low bytes,
// as in Triton.
func appendElement(dst []byte, d tensor.DType, size int, v uint64) []byte {
	switch size {
	case 1:
		if d == tensor.Bool {
			v = min(v, 1)
		}
		dst[0] = byte(v)
	case 2:
		binary.LittleEndian.PutUint16(dst, uint16(v&math.MaxUint16))
	case 4:
		binary.LittleEndian.PutUint32(dst, uint32(v&math.MaxUint32))
	default:
		binary.LittleEndian.PutUint64(dst, v)
	}
	return dst[size:]
}

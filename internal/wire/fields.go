package wire

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// Fields iterates over the fields of a nested message in contiguous memory.
type Fields struct {
	Rest []byte // after the current tag or value
	Num  protowire.Number
	Type protowire.Type
	Err  error // ends the iteration
}

// Next reads the next tag. It reports false at the end and after an error.
//
// hot: no allocation.
func (f *Fields) Next() bool {
	if f.Err != nil || len(f.Rest) == 0 {
		return false
	}
	v, n := protowire.ConsumeVarint(f.Rest)
	if n < 0 {
		f.Err = ErrMalformed
		return false
	}
	f.Rest = f.Rest[n:]
	f.Num, f.Type, f.Err = splitTag(v)
	return f.Err == nil
}

// Is reports whether the current field has this number and type. A field with another type is unknown.
func (f *Fields) Is(num protowire.Number, typ protowire.Type) bool {
	return f.Num == num && f.Type == typ
}

// take moves behind a value of n bytes; protowire returns a negative n, and the zero value, for a malformed one.
func (f *Fields) take(n int) {
	if n < 0 {
		f.Err = ErrMalformed
		return
	}
	f.Rest = f.Rest[n:]
}

// Varint reads the value of a varint field.
func (f *Fields) Varint() uint64 {
	v, n := protowire.ConsumeVarint(f.Rest)
	f.take(n)
	return v
}

// Fixed64 reads the value of a 64 bit field.
func (f *Fields) Fixed64() uint64 {
	v, n := protowire.ConsumeFixed64(f.Rest)
	f.take(n)
	return v
}

// Bytes reads the value of a length-delimited field. It refers to the message.
func (f *Fields) Bytes() []byte {
	v, n := protowire.ConsumeBytes(f.Rest)
	f.take(n)
	return v
}

// Text is Bytes for a value that must be UTF-8.
func (f *Fields) Text() []byte {
	b := f.Bytes()
	if !utf8.Valid(b) {
		f.Err = ErrMalformed
	}
	return b
}

// Skip skips the value.
func (f *Fields) Skip() { f.take(protowire.ConsumeFieldValue(f.Num, f.Type, f.Rest)) }

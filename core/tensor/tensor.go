package tensor

import (
	"encoding/binary"
	"fmt"
	"unsafe"
)

// Tensor is a typed view of Len bytes at Off in a buffer. It owns one reference on the buffer,
// so assignment moves a tensor; Retain makes a second one. The zero Tensor is absent, for
// example an optional input that the request does not give.
//
// Lifecycle: New or NewBytes, then writing by the only holder, then any number of Retain and
// Release, of which every tensor needs exactly one.
type Tensor struct {
	DType DType
	Shape Shape
	Buf   *Buffer
	Off   int
	Len   int
}

// New allocates an uncleared tensor of fixed-size elements. It fails for BYTES, for a shape with
// a dimension of -1, and when there is no memory.
func New(a Allocator, d DType, s Shape) (Tensor, error) {
	n := s.Elements()
	size := int64(d.Size())
	if n < 0 || size == 0 || n > maxBytes/size {
		return Tensor{}, fmt.Errorf("cannot allocate a %s tensor of shape %s", d, s)
	}
	b, err := a.Alloc(int(n * size))
	if err != nil {
		return Tensor{}, err
	}
	return Tensor{DType: d, Shape: s, Buf: b, Len: int(n * size)}, nil
}

// maxBytes bounds a tensor's size so that sizes and offsets never overflow an int64.
const maxBytes = 1 << 46

// NewBytes allocates a BYTES tensor of n bytes of encoded elements (AppendBytes), uncleared.
func NewBytes(a Allocator, s Shape, n int) (Tensor, error) {
	b, err := a.Alloc(n)
	if err != nil {
		return Tensor{}, err
	}
	return Tensor{DType: Bytes, Shape: s, Buf: b, Len: n}, nil
}

// Present reports whether t holds a tensor.
func (t *Tensor) Present() bool { return t.Buf != nil }

// Bytes returns the tensor's memory, borrowed. It panics for device memory.
func (t *Tensor) Bytes() []byte { return t.Buf.Bytes()[t.Off : t.Off+t.Len : t.Off+t.Len] }

// Pointer returns the address of the first byte, for native runtimes.
func (t *Tensor) Pointer() unsafe.Pointer { return unsafe.Add(t.Buf.ptr, t.Off) }

// Retain returns a second tensor on the same memory, with its own reference.
func (t Tensor) Retain() Tensor {
	if t.Buf != nil {
		t.Buf.Retain()
	}
	return t
}

// Release gives up the tensor's reference and leaves t absent. It may be called on an absent tensor.
func (t *Tensor) Release() {
	if b := t.Buf; b != nil {
		*t = Tensor{}
		b.Release()
	}
}

// ReleaseAll releases every tensor of list and leaves them absent.
func ReleaseAll(list []Tensor) {
	for i := range list {
		list[i].Release()
	}
}

// Move returns t and leaves t absent: the reference moves to the caller.
func (t *Tensor) Move() Tensor {
	m := *t
	*t = Tensor{}
	return m
}

// Number is an element type with a Go type of the same layout.
type Number interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float32 | ~float64
}

// Slice returns t's elements as Go numbers, borrowed. T must have the size of t's elements and t's offset must be
// aligned to it; anything else panics, as an index out of range does.
func Slice[T Number](t *Tensor) []T {
	var zero T
	size := int(unsafe.Sizeof(zero))
	if t.DType.Size() != size || t.Len%size != 0 {
		panic(fmt.Sprintf("tensor: %s elements seen as %T", t.DType, zero))
	}
	if t.Len == 0 {
		return nil
	}
	b := t.Bytes()
	p := unsafe.Pointer(unsafe.SliceData(b))
	if uintptr(p)%uintptr(size) != 0 {
		panic("tensor: elements are not aligned")
	}
	return unsafe.Slice((*T)(p), t.Len/size)
}

// lengthSize is the size of the length before each BYTES element.
const lengthSize = 4

// AppendBytes appends one BYTES element, length first, to dst.
func AppendBytes[T []byte | string](dst []byte, elem T) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(elem)))
	return append(dst, elem...)
}

// EncodedLen returns how many bytes AppendBytes adds for an element of n bytes.
func EncodedLen(n int) int { return lengthSize + n }

// NextBytes splits the first BYTES element off b. ok is false when b does not hold a whole one.
func NextBytes(b []byte) (elem, rest []byte, ok bool) {
	if len(b) < lengthSize {
		return nil, nil, false
	}
	n := uint64(binary.LittleEndian.Uint32(b))
	if uint64(len(b)-lengthSize) < n {
		return nil, nil, false
	}
	end := lengthSize + int(n)
	return b[lengthSize:end:end], b[end:], true
}

// BytesError reports why memory is not a list of BYTES elements.
type BytesError struct {
	Want, Got int64 // count elements; they are equal when the data ends inside one
	Left      int   // the number of bytes left where a length or an element was cut short
	Need      int64 // the size of the cut element, 0 where the length itself is cut
}

// Error returns the reason, without the tensor's name.
func (e *BytesError) Error() string {
	switch {
	case e.Want != e.Got:
		return fmt.Sprintf("expected %d string elements, got %d", e.Want, e.Got)
	case e.Need == 0:
		return fmt.Sprintf("incomplete string length indicator, expecting %d bytes but only %d bytes available", lengthSize, e.Left)
	default:
		return fmt.Sprintf("incomplete string data, expecting string of length %d but only %d bytes available", e.Need, e.Left)
	}
}

// CheckBytes verifies that b is exactly want BYTES elements; the error is a *BytesError.
func CheckBytes(b []byte, want int64) error {
	for got := int64(0); ; got++ {
		if len(b) == 0 {
			if got != want {
				return &BytesError{Want: want, Got: got}
			}
			return nil
		}
		if got == want {
			return &BytesError{Want: want, Got: got + 1}
		}
		if len(b) < lengthSize {
			return &BytesError{Want: want, Got: want, Left: len(b)}
		}
		_, rest, ok := NextBytes(b)
		if !ok {
			return &BytesError{Want: want, Got: want, Left: len(b) - lengthSize, Need: int64(binary.LittleEndian.Uint32(b))}
		}
		b = rest
	}
}

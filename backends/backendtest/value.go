package backendtest

import (
	"bytes"
	"testing"
	"unsafe"

	"github.com/tutti-server/tutti/core/tensor"
)

// Value is a tensor as a test writes it. The zero Value is an absent one.
type Value struct {
	DType tensor.DType
	Dims  []int64
	Data  []byte
}

// Of returns a tensor of fixed-size elements, given as Go numbers of the same size.
func Of[T tensor.Number](d tensor.DType, dims []int64, elems ...T) Value {
	v := Value{DType: d, Dims: dims}
	if len(elems) > 0 {
		v.Data = bytes.Clone(unsafe.Slice((*byte)(unsafe.Pointer(&elems[0])), len(elems)*int(unsafe.Sizeof(elems[0]))))
	}
	return v
}

// Strings returns a BYTES tensor.
func Strings(dims []int64, elems ...string) Value {
	v := Value{DType: tensor.Bytes, Dims: dims}
	for _, e := range elems {
		v.Data = tensor.AppendBytes(v.Data, e)
	}
	return v
}

// Tensor copies v into memory of a. The caller holds the reference.
func (v Value) Tensor(tb testing.TB, a tensor.Allocator) tensor.Tensor {
	tb.Helper()
	if v.DType == tensor.Invalid {
		return tensor.Tensor{}
	}
	b, err := a.Alloc(len(v.Data))
	if err != nil {
		tb.Errorf("input memory: %v", err) // not Fatalf: workers of the suite call this too
		return tensor.Tensor{}
	}
	copy(b.Bytes(), v.Data)
	return tensor.Tensor{DType: v.DType, Shape: tensor.Of(v.Dims...), Buf: b, Len: len(v.Data)}
}

// ValueOf copies t out of its memory.
func ValueOf(t *tensor.Tensor) Value {
	if !t.Present() {
		return Value{}
	}
	return Value{DType: t.DType, Dims: append([]int64{}, t.Shape.Dims()...), Data: append([]byte(nil), t.Bytes()...)}
}

package onnx

/*
#include "shim.h"
*/
import "C"

import (
	"unsafe"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// newBuffers wraps outputs of the runtime. Each holds a reference to the library.
func newBuffers(l *library) *bind.Buffers {
	return bind.NewBuffers(func(handle unsafe.Pointer) {
		C.tt_release(l.rt, (*C.OrtValue)(handle))
		l.release()
	})
}

// take sets the outputs of a successful run in the batch.
func (x *instance) take(b *backends.Batch) (err error) {
	for i := range x.out {
		v := &x.out[i]
		if v.given == 0 && err == nil {
			err = x.wrap(b, i)
		}
		if v.value != nil { // after an error
			C.tt_release(x.lib.rt, v.value)
			v.value = nil
		}
		if err == nil {
			err = x.m.binding.ReshapeOutput(i, &b.Out[i])
		}
	}
	return err
}

// wrap sets output i to the tensor that the runtime allocated.
func (x *instance) wrap(b *backends.Batch, i int) error {
	c, p := &x.out[i], &x.m.binding.Out[i]
	if c.value == nil || c.rank > C.TT_MAX_RANK || c._type != p.Native.ort {
		return status.Errorf(status.Internal, "model '%s', output '%s': expected a %s tensor of at most %d dimensions, got %s of %d",
			x.m.binding.Sig.Model, p.Name, p.DType, C.TT_MAX_RANK, ortTypes.Name(int(c._type)), c.rank)
	}
	shape := shapeOf(c)
	if p.DType == tensor.Bytes {
		return x.strings(b, i, shape)
	}
	n := int(shape.Elements()) * p.DType.Size()
	if from := x.borrowed(c.data); from >= 0 && x.stream != nil {
		t := b.In[from].Retain()
		t.Shape = shape
		b.SetOutput(i, t)
		return nil
	} else if from >= 0 {
		t, err := b.Alloc(i, p.DType, shape)
		if err != nil {
			return err
		}
		copy(t.Bytes(), unsafe.Slice((*byte)(c.data), n))
		return nil
	}
	x.lib.retain()
	b.SetOutput(i, x.buffers.Wrap(unsafe.Pointer(c.value), c.data, n, x.at, p.DType, shape))
	c.value = nil
	return nil
}

// strings copies the strings of output i to memory of the batch.
func (x *instance) strings(b *backends.Batch, i int, shape tensor.Shape) error {
	c, n := &x.out[i], int(shape.Elements())
	t, err := b.AllocBytes(i, shape, int(c.bytes)+tensor.EncodedLen(0)*n)
	if err != nil {
		return x.m.binding.OutputError(i, err)
	}
	if st := C.tt_take_strings(x.call, C.size_t(i), C.size_t(n), (*C.char)(t.Pointer())); st != nil {
		return status.Errorf(status.Internal, "model '%s': %w", x.m.binding.Sig.Model, x.lib.check(st))
	}
	return nil
}

// borrowed returns the input whose memory contains p, or -1. A model that passes an input through returns the caller's memory,
// which is not valid after the execution.
func (x *instance) borrowed(p unsafe.Pointer) int {
	for i := range x.in {
		v := &x.in[i]
		if v.use != 0 && uintptr(p) >= uintptr(v.data) && uintptr(p) < uintptr(v.data)+uintptr(v.bytes) {
			return i
		}
	}
	return -1
}

// shapeOf returns the shape of v.
func shapeOf(v *C.tt_value) tensor.Shape {
	return tensor.Of(unsafe.Slice((*int64)(unsafe.Pointer(&v.dims[0])), int(v.rank))...)
}

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

// lender gives outputs that are handed on without a copy back to the runtime, which they hold.
func newBuffers(l *library) *bind.Buffers {
	return bind.NewBuffers(func(handle unsafe.Pointer) {
		C.tt_release(l.rt, (*C.OrtValue)(handle))
		l.release()
	})
}

// take hands the outputs of a successful run to the batch.
func (x *instance) take(b *backends.Batch) (err error) {
	for i := range x.out {
		v := &x.out[i]
		if v.given == 0 && err == nil {
			err = x.wrap(b, i)
		}
		if v.value != nil { // a failure left it behind
			C.tt_release(x.lib.rt, v.value)
			v.value = nil
		}
		if err == nil {
			err = x.m.binding.ReshapeOutput(i, &b.Out[i])
		}
	}
	return err
}

// wrap makes output i of the batch the tensor that the runtime allocated.
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

// strings copies the strings of output i into the batch's memory: the runtime keeps each in a place of its own.
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

// borrowed returns the input in whose memory p lies, -1 for none: a model that hands an input through returns the very same
// memory, which is the caller's again after the run.
func (x *instance) borrowed(p unsafe.Pointer) int {
	for i := range x.in {
		v := &x.in[i]
		if v.use != 0 && uintptr(p) >= uintptr(v.data) && uintptr(p) < uintptr(v.data)+uintptr(v.bytes) {
			return i
		}
	}
	return -1
}

// shapeOf returns v's shape.
func shapeOf(v *C.tt_value) tensor.Shape {
	return tensor.Of(unsafe.Slice((*int64)(unsafe.Pointer(&v.dims[0])), int(v.rank))...)
}

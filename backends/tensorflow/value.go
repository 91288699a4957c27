package tensorflow

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

// lender gives outputs that are handed on without a copy back to the runtime.
func newBuffers(l *library) *bind.Buffers {
	return bind.NewBuffers(func(handle unsafe.Pointer) { C.ttf_release(l.f, (*C.TF_Tensor)(handle)) })
}

// take sets the outputs of a successful run in the batch.
func (x *instance) take(b *backends.Batch) (err error) {
	for i := range x.out {
		v := &x.out[i]
		if err == nil {
			err = x.output(b, i)
		}
		if v.tensor != nil { // copied, or after an error
			C.ttf_release(x.lib.f, v.tensor)
			v.tensor = nil
		}
		if err == nil {
			err = x.m.binding.ReshapeOutput(i, &b.Out[i])
		}
	}
	return err
}

// output sets output i to the tensor of the runtime, or to a copy.
func (x *instance) output(b *backends.Batch, i int) error {
	v, p := &x.out[i], &x.m.binding.Out[i]
	if v.tensor == nil {
		return status.Errorf(status.Internal, "model '%s', output '%s': the runtime gave none", x.m.binding.Sig.Model, p.Name)
	}
	if v.rank > C.TTF_MAX_RANK || int(v._type) != p.Native.tf {
		return status.Errorf(status.Internal, "model '%s', output '%s': expected a %s tensor of at most %d dimensions, got %s of %d",
			x.m.binding.Sig.Model, p.Name, p.DType, C.TTF_MAX_RANK, tfTypes.Name(int(v._type)), v.rank)
	}
	shape := shapeOf(v)
	if p.DType == tensor.Bytes {
		t, err := b.AllocBytes(i, shape, int(v.bytes))
		if err != nil {
			return x.m.binding.OutputError(i, err)
		}
		if t.Len > 0 {
			C.ttf_strings(x.lib.f, v, t.Pointer())
		}
		return nil
	}
	if v.sole == 0 || v.bytes == 0 {
		t, err := b.Alloc(i, p.DType, shape)
		if err != nil {
			return x.m.binding.OutputError(i, err)
		}
		copy(t.Bytes(), unsafe.Slice((*byte)(v.data), int(v.bytes)))
		return nil
	}
	b.SetOutput(i, x.buffers.Wrap(unsafe.Pointer(v.tensor), v.data, int(v.bytes), tensor.Place{}, p.DType, shape))
	v.tensor = nil
	return nil
}

// shapeOf returns the shape of v.
func shapeOf(v *C.ttf_value) tensor.Shape {
	return tensor.Of(unsafe.Slice((*int64)(unsafe.Pointer(&v.dims[0])), int(v.rank))...)
}

package pytorch

/*
#cgo noescape ttpt_free
#cgo nocallback ttpt_free
#include "call.h"
*/
import "C"

import (
	"unsafe"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// newBuffers returns the outputs that share PyTorch's memory; their release frees it in PyTorch.
func newBuffers(l *library) *bind.Buffers {
	return bind.NewBuffers(func(handle unsafe.Pointer) { C.ttpt_free(&l.api, handle) })
}

// take sets the outputs of a successful run in the batch, and frees those that remain after an error.
func (x *instance) take(b *backends.Batch) (err error) {
	for i := range x.out {
		v := &x.out[i]
		if err == nil {
			err = x.output(b, i)
		}
		if v.handle != nil {
			C.ttpt_free(&x.lib.api, v.handle)
			v.handle = nil
		}
	}
	return err
}

// output sets output i to the tensor of PyTorch, or to a copy.
func (x *instance) output(b *backends.Batch, i int) error {
	v, p := &x.out[i], &x.m.out[i]
	if int32(v._type) != p.scalar {
		return status.Errorf(status.Internal, "model '%s': unexpected datatype %s for inference output '%s', expecting %s",
			x.m.sig.Model, scalarName(int32(v._type)), p.name, p.dtype.ConfigName())
	}
	shape, err := x.shape(v, p, b.Rows)
	if err != nil {
		return err
	}
	if p.dtype == tensor.Bytes {
		t, err := b.AllocBytes(i, shape, int(v.bytes))
		if err == nil && t.Len > 0 {
			C.ttpt_strings(&x.lib.api, v, t.Pointer())
		}
		return err
	}
	n := int(v.bytes)
	if x.borrowed(v.data) {
		t, err := b.Alloc(i, p.dtype, shape)
		if err != nil {
			return err
		}
		copy(t.Bytes(), unsafe.Slice((*byte)(v.data), n))
		return nil
	}
	b.SetOutput(i, x.buffers.Wrap(v.handle, v.data, n, tensor.Place{}, p.dtype, shape))
	v.handle = nil
	return nil
}

// shape checks the shape of an output. A scalar matches declared dimensions of size 1, because dims cannot be empty.
func (x *instance) shape(v *C.tt_torch_value, p *boundPort, rows int) (tensor.Shape, error) {
	shape := tensor.Of(unsafe.Slice((*int64)(unsafe.Pointer(&v.dims[0])), int(v.rank))...)
	batch := x.m.sig.MaxBatch > 0
	if v.rank == 0 && !batch && ones(p.dims) {
		return tensor.Of(p.dims...), nil
	}
	if accepts(p.dims, shape.Dims()) && (!batch || shape.Dim(0) == int64(rows)) {
		return shape, nil
	}
	want := tensor.Of(p.dims...)
	if batch {
		want.SetDim(0, int64(rows))
	}
	return shape, status.Errorf(status.Internal, "model '%s', output '%s': expected shape %s, the model made %s", x.m.sig.Model, p.name, want, shape)
}

func ones(dims []int64) bool {
	for _, d := range dims {
		if d != 1 {
			return false
		}
	}
	return true
}

// borrowed reports whether p is in the memory of an input. A model that passes an input through returns the caller's memory, which is
// not valid after the execution.
func (x *instance) borrowed(p unsafe.Pointer) bool {
	for i := range x.in {
		v := &x.in[i]
		if v.use != 0 && uintptr(p) >= uintptr(v.data) && uintptr(p) < uintptr(v.data)+uintptr(v.bytes) {
			return true
		}
	}
	return false
}

package openvino

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

// lender gives outputs that are handed on without a copy back to the runtime, whose library they hold.
func newBuffers(l *library) *bind.Buffers {
	return bind.NewBuffers(func(handle unsafe.Pointer) {
		C.tov_release(l.f, (*C.ov_tensor)(handle))
		l.release()
	})
}

// take sets the outputs of a successful run in the batch.
func (x *instance) take(b *backends.Batch) (err error) {
	for i := range x.out {
		v, p := &x.out[i], &x.m.binding.Out[i]
		if v.given == 0 && err == nil {
			err = x.output(b, i)
		}
		if v.tensor != nil { // copied, or after an error
			C.tov_release(x.lib.f, v.tensor)
			v.tensor = nil
		}
		if err == nil && p.Native.ones > 0 {
			x.ones(&b.Out[i], p.Native.ones)
		}
	}
	return err
}

// output sets output i to the result of the run.
func (x *instance) output(b *backends.Batch, i int) error {
	v, p := &x.out[i], &x.m.binding.Out[i]
	if v.rank > C.TOV_MAX_RANK {
		return status.Errorf(status.Internal, "model '%s', output '%s': expected at most %d dimensions, got %d",
			x.m.binding.Sig.Model, p.Name, C.TOV_MAX_RANK, v.rank)
	}
	whole := shapeOf(v)
	shape, elements := whole, whole.Elements()
	if fixed := x.m.fixed; fixed > int64(b.Rows) && whole.Rank() > 0 && whole.Dim(0) == fixed {
		shape.SetDim(0, int64(b.Rows))
		v.dims[0] = C.int64_t(b.Rows)
		v.elements = C.size_t(shape.Elements())
	}
	if p.DType == tensor.Bytes {
		return x.stringsOut(b, i, shape, int(elements))
	}
	n := int(shape.Elements()) * p.DType.Size()
	if p.Native.lent || shape.Elements() != elements {
		t, err := b.Alloc(i, p.DType, shape)
		if err == nil {
			copy(t.Bytes(), unsafe.Slice((*byte)(v.data), n))
		}
		return err
	}
	x.lib.retain()
	b.SetOutput(i, x.buffers.Wrap(unsafe.Pointer(v.tensor), v.data, n, tensor.Place{}, p.DType, shape))
	v.tensor = nil
	return nil
}

// ones appends n dimensions of size 1.
func (*instance) ones(t *tensor.Tensor, n int) {
	var dims [C.TOV_MAX_RANK + 1]int64
	all := append(dims[:0], t.Shape.Dims()...)
	for range n {
		all = append(all, 1)
	}
	t.Shape = tensor.Of(all...)
}

// shapeOf returns the shape of v.
func shapeOf(v *C.tov_value) tensor.Shape {
	return tensor.Of(unsafe.Slice((*int64)(unsafe.Pointer(&v.dims[0])), int(v.rank))...)
}

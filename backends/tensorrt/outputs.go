//go:build cgo

package tensorrt

/*
#include "trt.h"
*/
import "C"

import (
	"math"
	"math/bits"
	"runtime/cgo"
	"unsafe"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// allocate gives the outputs memory, as far as their shapes are known.
func (x *instance) allocate(e *execution, b *backends.Batch) error {
	for i := range e.out {
		v, p := &e.out[i], x.outputPort(i)
		v.data = nil
		switch {
		case p.Native.host:
			v.data, v.allocates = x.hosted[len(x.m.In)+i], 0
		case v.allocates != 0: // TensorRT asks for it
		case i < len(b.Out):
			t, err := b.Alloc(i, p.DType, bind.ShapeAt(unsafe.Pointer(&v.dims.d[0]), int(v.dims.rank)))
			if err != nil {
				return x.m.OutputError(i, err)
			}
			v.data = t.Pointer()
		default:
			n, err := sizeOf(p.DType, bind.ShapeAt(unsafe.Pointer(&v.dims.d[0]), int(v.dims.rank)))
			if err != nil {
				return x.m.Errorf(status.Internal, "output '%s': %w", p.Name, err)
			}
			s, err := x.stream.Alloc(n)
			if err != nil {
				return x.m.Errorf(status.CodeOf(err), "output '%s': %w", p.Name, err)
			}
			x.spare = append(x.spare, s)
			v.data = s.Pointer()
		}
	}
	return nil
}

// sizeOf returns the bytes of a tensor of a shape that TensorRT reports.
func sizeOf(d tensor.DType, s tensor.Shape) (int, error) {
	hi, n := bits.Mul64(uint64(s.Elements()), uint64(d.Size()))
	if s.Elements() < 0 || hi != 0 || n > math.MaxInt64 {
		return 0, status.Errorf(status.Internal, "TensorRT reports shape %s, which no memory has", s)
	}
	return int(n), nil
}

//export tttrtAllocate
func tttrtAllocate(owner C.uintptr_t, index C.int32_t, n C.uint64_t) C.uintptr_t {
	x := cgo.Handle(owner).Value().(*instance) //nolint:errcheck,forcetypeassert // newInstance made the handle
	return C.uintptr_t(uintptr(x.allocateOutput(int(index), int(min(n, math.MaxInt64)))))
}

// allocateOutput returns device memory for output i, of which TensorRT knows the size now. It may ask again for more.
func (x *instance) allocateOutput(i, n int) unsafe.Pointer {
	if old := x.owned[i]; old != nil {
		if old.Len() >= n {
			return old.Pointer()
		}
		x.spare = append(x.spare, old)
		x.owned[i] = nil
	}
	b, err := x.stream.Alloc(n)
	if err != nil {
		x.failed = x.m.Errorf(status.CodeOf(err), "output '%s': %w", x.outputPort(i).Name, err)
		return nil
	}
	x.owned[i] = b
	return b.Pointer()
}

// take sets the outputs that TensorRT allocated, and those on the host.
func (x *instance) take(e *execution, b *backends.Batch) error {
	for i := range b.Out {
		v, p := &e.out[i], &x.m.Out[i]
		shape := bind.ShapeAt(unsafe.Pointer(&v.dims.d[0]), max(0, int(v.dims.rank)))
		switch {
		case p.Native.host:
			if err := x.takeValues(i, b, shape); err != nil {
				return err
			}
		case v.allocates != 0:
			n, err := sizeOf(p.DType, shape)
			if err != nil || x.owned[i] == nil || n > x.owned[i].Len() {
				return x.m.OutputErrorf(i, status.Internal, "TensorRT reports shape %s, which does not fit the memory that it asked for", shape)
			}
			b.SetOutput(i, tensor.Tensor{DType: p.DType, Shape: shape, Buf: x.owned[i], Len: n})
			x.owned[i] = nil
		}
		if err := x.m.ReshapeOutput(i, &b.Out[i]); err != nil {
			return err
		}
	}
	return nil
}

// takeValues sets an output that is a shape tensor. In a model that batches the first value is the batch, which responses do not carry.
func (x *instance) takeValues(i int, b *backends.Batch, shape tensor.Shape) error {
	p := &x.m.Out[i]
	memory := unsafe.Slice((*byte)(x.hosted[len(x.m.In)+i]), int(shape.Elements())*p.DType.Size())
	if x.m.Sig.MaxBatch > 0 {
		first := int64(*(*int32)(unsafe.Pointer(&memory[0])))
		if p.DType == tensor.Int64 {
			first = *(*int64)(unsafe.Pointer(&memory[0]))
		}
		if first != int64(b.Rows) {
			return x.m.OutputErrorf(i, status.Internal, "the first value of the shape tensor is %d, expected the batch of %d", first, b.Rows)
		}
		memory = memory[p.DType.Size():]
		shape = tensor.Of(shape.Dim(0) - 1)
	}
	alloc := b.HostAllocator
	if alloc == nil {
		alloc = x.m.settings.Alloc
	}
	t, err := tensor.New(alloc, p.DType, shape)
	if err != nil {
		return x.m.OutputError(i, err)
	}
	copy(t.Bytes(), memory)
	b.SetOutput(i, t)
	return nil
}

// readShapes reads the shapes of the inputs as the plan has them, and the values of shape tensors.
func (x *instance) readShapes(b *backends.Batch) error {
	for i := range b.In {
		t, p := &b.In[i], &x.m.In[i]
		if !t.Present() {
			return x.m.InputErrorf(i, status.InvalidArg, "the input is missing, which the plan needs")
		}
		if t.DType != p.DType || t.Shape.Rank() > C.TT_TRT_RANK || int64(t.Len) != t.Shape.Elements()*int64(t.DType.Size()) {
			return x.m.InputErrorf(i, status.InvalidArg, "expected a %s tensor of shape %s, got a %s tensor of shape %s and %d bytes",
				p.DType, tensor.Of(p.Shape...), t.DType, t.Shape, t.Len)
		}
		if p.Native.shape {
			if err := x.readValues(i, b.Rows, t); err != nil {
				return err
			}
			continue
		}
		n, ok := p.Reshape.Apply(x.dims[i].d[:], t.Shape.Dims())
		if !ok {
			return x.m.UnexpectedInput(i, t)
		}
		x.dims[i].rank = n
	}
	return nil
}

// readValues reads the values of a shape tensor, behind the batch where the model batches.
func (x *instance) readValues(i, rows int, t *tensor.Tensor) error {
	p := &x.m.In[i]
	to := x.values[i]
	if t.Buf.Place().Kind == tensor.Device || !p.Native.host {
		return x.m.InputErrorf(i, status.Internal, "expected a shape tensor on the host")
	}
	if x.m.Sig.MaxBatch > 0 {
		to[0], to = int64(rows), to[1:]
	}
	if t.Shape.Elements() != int64(len(to)) {
		return x.m.InputErrorf(i, status.InvalidArg, "expected a shape tensor of %d values, got shape %s", len(to), t.Shape)
	}
	if p.DType == tensor.Int64 {
		copy(to, tensor.Slice[int64](t))
		return nil
	}
	for k, n := range tensor.Slice[int32](t) {
		to[k] = int64(n)
	}
	return nil
}

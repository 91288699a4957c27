package pytorch

/*
#cgo noescape ttpt_run
#cgo nocallback ttpt_run
#cgo noescape ttpt_strings
#cgo nocallback ttpt_strings
#cgo noescape ttpt_free
#cgo nocallback ttpt_free
#include "call.h"
*/
import "C"

import (
	"context"
	"slices"
	"unsafe"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// instance executes batches with a reusable call in C memory, so that an execution does not allocate in Go and C code never holds a
// Go pointer.
type instance struct {
	m       *model
	lib     *library
	own     *C.tt_torch_model // a copy of the model with its own weights, or nil
	call    *C.tt_torch_call
	in, out []C.tt_torch_value // the call's, in C memory
	buffers *bind.Buffers
}

var _ backends.Instance = (*instance)(nil)

// newInstance returns an instance that runs use, which it owns when own is not nil.
func newInstance(m *model, use, own *C.tt_torch_model) (backends.Instance, error) {
	l := m.lib
	call := C.ttpt_call_new(use, C.size_t(len(m.In)), C.size_t(len(m.Out)))
	if call == nil {
		l.unload(own)
		return nil, status.Errorf(status.Internal, "no memory for an instance of model '%s'", m.Sig.Model)
	}
	return &instance{
		m: m, lib: l, own: own, call: call, in: unsafe.Slice(call.in, len(m.In)), out: unsafe.Slice(call.out, len(m.Out)),
		buffers: bind.NewBuffers(func(handle unsafe.Pointer) { C.ttpt_free(&l.api, handle) }),
	}, nil
}

// Close frees the call. Outputs of earlier executions stay valid.
func (x *instance) Close() error {
	if x.call == nil {
		return nil
	}
	C.ttpt_call_free(x.call)
	x.lib.unload(x.own)
	x.call, x.own, x.in, x.out = nil, nil, nil, nil
	return nil
}

// Execute runs the model with one call of C code. A run cannot be stopped after it has started.
//
// hot: no allocation in Go in the steady state.
func (x *instance) Execute(ctx context.Context, b *backends.Batch) error {
	if err := x.m.CheckExecute(ctx, x.call != nil, b); err != nil {
		return err
	}
	if err := x.inputs(b); err != nil {
		return err
	}
	if C.ttpt_run(&x.lib.api, x.call) != 0 {
		return x.m.Errorf(status.Internal, "PyTorch: %s", shorten(C.GoString(&x.call.why[0])))
	}
	return x.take(b)
}

// inputs sets the inputs of the call.
func (x *instance) inputs(b *backends.Batch) error {
	for i := range b.In {
		t, v, p := &b.In[i], &x.in[i], &x.m.In[i]
		v.use = 0
		if !t.Present() {
			if !x.m.Sig.Inputs[i].Optional {
				return x.m.Errorf(status.InvalidArg, "input '%s' is missing", p.Name)
			}
			continue
		}
		dims := t.Shape.Dims()
		// PyTorch does not check that the size of a tensor matches its shape.
		if t.DType != p.DType || !accepts(p.Shape, dims) || t.DType != tensor.Bytes && int64(t.Len) != t.Shape.Elements()*int64(t.DType.Size()) {
			return x.m.InputErrorf(i, status.InvalidArg, "expected a %s tensor of shape %s, got a %s tensor of shape %s and %d bytes",
				p.DType, tensor.Of(p.Shape...), t.DType, t.Shape, t.Len)
		}
		v.use, v.data, v.bytes = 1, t.Pointer(), C.size_t(t.Len)
		v._type, v.rank = p.Native, C.int32_t(len(dims))
		copy((*[C.TT_TORCH_RANK]int64)(unsafe.Pointer(&v.dims))[:], dims)
	}
	return nil
}

// accepts reports whether a shape matches the declared dimensions and the shim's maximal rank.
func accepts(want, dims []int64) bool {
	if len(dims) != len(want) || len(dims) > C.TT_TORCH_RANK {
		return false
	}
	for i, d := range dims {
		if want[i] != -1 && want[i] != d {
			return false
		}
	}
	return true
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

// output sets output i to the tensor of PyTorch, or to a copy: an input that the model passes through is the caller's memory, which
// is not valid after the execution.
func (x *instance) output(b *backends.Batch, i int) error {
	v, p := &x.out[i], &x.m.Out[i]
	if v._type != p.Native {
		return x.m.Errorf(status.Internal, "unexpected datatype %s for inference output '%s', expecting %s", scalarName(v._type), p.Name, p.DType.ConfigName())
	}
	shape, err := x.shape(i, b.Rows)
	if err != nil {
		return err
	}
	n := int(v.bytes)
	if p.DType == tensor.Bytes {
		t, err := b.AllocBytes(i, shape, n)
		if err == nil && t.Len > 0 {
			C.ttpt_strings(&x.lib.api, v, t.Pointer())
		}
		return err
	}
	for k := range x.in {
		if in := &x.in[k]; in.use != 0 && bind.Within(v.data, in.data, int(in.bytes)) {
			return bind.CopyOutput(b, i, p.DType, shape, v.data, n)
		}
	}
	b.SetOutput(i, x.buffers.Wrap(v.handle, v.data, n, tensor.Place{}, p.DType, shape))
	v.handle = nil
	return nil
}

// shape checks the shape of an output. A scalar matches declared dimensions of size 1, because dims cannot be empty.
func (x *instance) shape(i, rows int) (tensor.Shape, error) {
	v, p, batch := &x.out[i], &x.m.Out[i], x.m.Sig.MaxBatch > 0
	shape := bind.ShapeAt(unsafe.Pointer(&v.dims), int(v.rank))
	if v.rank == 0 && !batch && !slices.ContainsFunc(p.Shape, func(d int64) bool { return d != 1 }) {
		return tensor.Of(p.Shape...), nil
	}
	if accepts(p.Shape, shape.Dims()) && (!batch || shape.Dim(0) == int64(rows)) {
		return shape, nil
	}
	want := tensor.Of(p.Shape...)
	if batch {
		want.SetDim(0, int64(rows))
	}
	return shape, x.m.OutputErrorf(i, status.Internal, "expected shape %s, the model made %s", want, shape)
}

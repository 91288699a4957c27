package pytorch

/*
#cgo noescape ttpt_run
#cgo nocallback ttpt_run
#cgo noescape ttpt_strings
#cgo nocallback ttpt_strings
#include "call.h"
*/
import "C"

import (
	"context"
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

func (x *instance) open(use *C.tt_torch_model) error {
	x.call = C.ttpt_call_new(use, C.size_t(len(x.m.in)), C.size_t(len(x.m.out)))
	if x.call == nil {
		return status.Errorf(status.Internal, "no memory for an instance of model '%s'", x.m.sig.Model)
	}
	x.in = unsafe.Slice(x.call.in, len(x.m.in))
	x.out = unsafe.Slice(x.call.out, len(x.m.out))
	return nil
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
	if err := bind.CheckExecute(ctx, x.call != nil, x.m.sig.Model, b, len(x.m.in), len(x.m.out)); err != nil {
		return err
	}
	if err := x.inputs(b); err != nil {
		return err
	}
	if C.ttpt_run(&x.lib.api, x.call) != 0 {
		return status.Errorf(status.Internal, "model '%s': PyTorch: %s", x.m.sig.Model, shorten(C.GoString(&x.call.why[0])))
	}
	return x.take(b)
}

// inputs sets the inputs of the call.
func (x *instance) inputs(b *backends.Batch) error {
	for i := range b.In {
		t, v, p := &b.In[i], &x.in[i], &x.m.in[i]
		v.use = 0
		if !t.Present() {
			if !x.m.sig.Inputs[i].Optional {
				return status.Errorf(status.InvalidArg, "model '%s': input '%s' is missing", x.m.sig.Model, p.name)
			}
			continue
		}
		if t.DType != p.dtype || !accepts(p.dims, t.Shape.Dims()) || !sizeMatches(t) {
			return status.Errorf(status.InvalidArg, "model '%s', input '%s': expected a %s tensor of shape %s, got a %s tensor of shape %s and %d bytes",
				x.m.sig.Model, p.name, p.dtype, tensor.Of(p.dims...), t.DType, t.Shape, t.Len)
		}
		v.use = 1
		v.data, v.bytes = t.Pointer(), C.size_t(t.Len)
		v._type = C.int32_t(p.scalar)
		dims := t.Shape.Dims()
		v.rank = C.int32_t(len(dims))
		for k, d := range dims {
			v.dims[k] = C.int64_t(d)
		}
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

// sizeMatches reports whether the size of a tensor matches its shape, which PyTorch does not check.
func sizeMatches(t *tensor.Tensor) bool {
	return t.DType == tensor.Bytes || int64(t.Len) == t.Shape.Elements()*int64(t.DType.Size())
}

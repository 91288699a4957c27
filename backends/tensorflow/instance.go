package tensorflow

/*
#cgo noescape ttf_run
#cgo nocallback ttf_run
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"context"
	"math/bits"
	"unsafe"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/status"
)

// instance executes batches with a reusable ttf_call in C memory, so that an execution does not allocate and C code never holds a Go
// pointer.
type instance struct {
	m        *model
	lib      *library
	ses      *session
	call     *C.ttf_call
	in, out  []C.ttf_value // the call's, in C memory
	retained []retained
	buffers  *bind.Buffers
}

var _ backends.Instance = (*instance)(nil)

func newInstance(m *model, ses *session) (*instance, error) {
	x := &instance{m: m, lib: m.how.lib, ses: ses, buffers: newBuffers(m.how.lib)}
	x.call = C.ttf_call_new(ses.c, C.size_t(len(m.binding.In)), C.size_t(len(m.binding.Out)))
	if x.call == nil {
		return nil, status.Errorf(status.Internal, "no memory for an instance of model '%s'", m.binding.Sig.Model)
	}
	x.in = unsafe.Slice(x.call.in, len(m.binding.In))
	x.out = unsafe.Slice(x.call.out, len(m.binding.Out))
	err := x.place(x.in, m.binding.In, false)
	if err == nil {
		err = x.place(x.out, m.binding.Out, true)
	}
	if err != nil {
		C.ttf_call_free(x.call)
		return nil, err
	}
	return x, nil
}

// place looks up the ports in the instance's session.
func (x *instance) place(values []C.ttf_value, ports []boundPort, output bool) error {
	for i := range ports {
		found, ok := x.ses.find(ports[i].Native.at)
		if !ok {
			return status.Errorf(status.InvalidArg, "model '%s', %s '%s': the graph has no tensor '%s', which the signature names",
				x.m.binding.Sig.Model, bind.Side(output), ports[i].Name, ports[i].Native.at)
		}
		values[i].at = found.at
	}
	return nil
}

// Close frees the call. Outputs of earlier executions stay valid.
func (x *instance) Close() error {
	if x.call == nil {
		return nil
	}
	C.ttf_call_free(x.call)
	x.call, x.in, x.out = nil, nil, nil
	x.m.leave(x.ses, releaseReturned(x.retained))
	x.retained = nil
	return nil
}

// Execute runs the model with one call of C code. Outputs stay in memory of the runtime, without a copy, unless that memory is
// shared. The runtime cannot stop a run that has started.
//
// hot: no allocation in the steady state.
func (x *instance) Execute(ctx context.Context, b *backends.Batch) error {
	if err := x.m.binding.CheckExecute(ctx, x.call != nil, b); err != nil {
		return err
	}
	x.reclaim()
	if err := x.inputs(b); err != nil {
		return err
	}
	var err error
	if code := C.ttf_run(x.call); code != 0 {
		err = x.failure(b, code)
	} else {
		err = x.take(b)
	}
	if lost := x.retain(b); err == nil {
		err = lost
	}
	return err
}

func (x *instance) failure(b *backends.Batch, code C.int) error {
	switch code {
	case C.TTF_UNFIT:
		i := int(x.call.bad)
		return x.m.binding.UnexpectedInput(i, &b.In[i])
	case C.TTF_NO_MEMORY:
		return status.Errorf(status.Internal, "model '%s', input '%s': no memory for a copy", x.m.binding.Sig.Model, x.m.binding.In[x.call.bad].Name)
	default:
		return status.Prefixf(failure(code, C.ttf_call_text(x.call)), "model '%s': ", x.m.binding.Sig.Model)
	}
}

// inputs sets the inputs of the call.
func (x *instance) inputs(b *backends.Batch) error {
	own := C.int(0)
	if x.m.copies.Load() {
		own = 1
	}
	for i := range b.In {
		t, v, p := &b.In[i], &x.in[i], &x.m.binding.In[i]
		v.use, v.copy = 0, own
		if !t.Present() {
			continue
		}
		if t.DType != p.DType || t.Shape.Rank() > C.TTF_MAX_RANK || !resize(v, t.Shape.Dims(), p.Reshape) {
			return x.m.binding.UnexpectedInput(i, t)
		}
		n := elements(v)
		if size := t.DType.Size(); n < 0 || size > 0 && (n > t.Len || n*size != t.Len) {
			return x.m.binding.UnexpectedInput(i, t)
		}
		v.use, v.data, v.bytes, v.count, v._type = 1, t.Pointer(), C.size_t(t.Len), C.size_t(n), C.int(p.Native.tf)
	}
	return nil
}

// elements returns how many elements v's shape has, -1 where it is none or the runtime, which ends the process on
// overflow even where a later extent is 0, could not count them.
func elements(v *C.ttf_value) int {
	n, empty := uint64(1), false
	for _, d := range v.dims[:v.rank] {
		if d < 0 || d > maxElements {
			return -1
		}
		if d == 0 {
			empty = true
			continue
		}
		hi, lo := bits.Mul64(n, uint64(d))
		if n = lo; hi != 0 || lo > maxElements {
			return -1
		}
	}
	if empty {
		return 0
	}
	return int(n) //nolint:gosec // at most maxElements
}

// maxElements bounds a tensor.
const maxElements = 1 << 46

// resize sets v's shape to dims, or to what r makes of them.
func resize(v *C.ttf_value, dims []int64, r bind.Extents) bool {
	n, ok := r.Apply((*[C.TTF_MAX_RANK]int64)(unsafe.Pointer(&v.dims))[:], dims)
	v.rank = C.int(n)
	return ok
}

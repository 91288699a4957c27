package onnx

/*
#cgo noescape tt_run
#cgo nocallback tt_run
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"context"
	"errors"
	"unsafe"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// instance executes batches with a reusable tt_call in C memory, so that an execution does not allocate and C code never holds a
// Go pointer.
type instance struct {
	m       *model
	lib     *library
	call    *C.tt_call
	in, out []C.tt_value  // the call's, in C memory
	buffers *bind.Buffers // of outputs, each of which holds the runtime
	watch   watch
	at      tensor.Place
	stream  tensor.Stream // nil on the host
}

var _ backends.Instance = (*instance)(nil)

func newInstance(m *model, s *session) (*instance, error) {
	if s.s == nil {
		return nil, status.Errorf(status.Unavailable, "model '%s' is closed", m.binding.Sig.Model)
	}
	x := &instance{m: m, lib: s.lib.retain(), buffers: newBuffers(s.lib)}
	made := new(*C.tt_call)
	err := x.lib.check(C.tt_call_new(s.lib.rt, s.s, C.size_t(len(m.binding.In)), C.size_t(len(m.binding.Out)), made))
	if x.call = *made; x.call == nil || err != nil {
		C.tt_call_free(x.call)
		x.lib.release()
		return nil, status.Errorf(status.Internal, "no memory for an instance of model '%s'", m.binding.Sig.Model)
	}
	x.watch.begin(x.call)
	x.in = unsafe.Slice(x.call.in, len(m.binding.In))
	x.out = unsafe.Slice(x.call.out, len(m.binding.Out))
	for i, p := range m.binding.In {
		x.name(false, i, p.Name)
	}
	for i, p := range m.binding.Out {
		x.name(true, i, p.Name)
	}
	if err = x.option("memory.enable_memory_arena_shrinkage", m.shrink); err != nil {
		_ = x.Close()
		return nil, status.Prefixf(err, "model '%s': ", m.binding.Sig.Model)
	}
	return x, nil
}

func (x *instance) name(output bool, i int, name string) {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	C.tt_call_name(x.call, flag(output), C.size_t(i), c)
}

func (x *instance) option(key, value string) error {
	if value == "" {
		return nil
	}
	k, v := C.CString(key), C.CString(value)
	defer C.free(unsafe.Pointer(k))
	defer C.free(unsafe.Pointer(v))
	return x.lib.check(C.tt_call_option(x.call, k, v))
}

// Close frees the call. Outputs of earlier executions stay valid.
func (x *instance) Close() error {
	if x.call == nil {
		return nil
	}
	C.tt_call_free(x.call)
	x.call, x.in, x.out = nil, nil, nil
	x.lib.release()
	return nil
}

// Execute runs the model with one call of C code. Outputs whose shape is known before the run are written to memory of the batch;
// the others stay in memory of the runtime, without a copy.
//
// hot: no allocation in the steady state.
func (x *instance) Execute(ctx context.Context, b *backends.Batch) error {
	if err := x.m.binding.CheckExecute(ctx, x.call != nil, b); err != nil {
		return err
	}
	if err := x.inputs(b); err != nil {
		return err
	}
	guess := !x.m.unsure.Load()
	guessed, err := x.outputs(b, guess)
	if err != nil {
		return err
	}
	if err = x.run(ctx, b); err == nil {
		return x.take(b)
	}
	if !guessed || errors.Is(err, status.ErrCancelled) {
		return err
	}
	return x.retry(ctx, b, err)
}

// run runs the model once. It stops when all requests are cancelled.
func (x *instance) run(ctx context.Context, b *backends.Batch) error {
	if err := x.inputsReady(); err != nil {
		return status.Prefixf(err, "model '%s': ", x.m.binding.Sig.Model)
	}
	watched := x.watch.over(ctx, b)
	st := C.tt_run(x.call)
	stopped := watched && x.watch.end()
	switch {
	case st == nil:
		return nil
	case stopped:
		C.tt_forget(x.lib.rt, st)
		return status.ErrCancelled
	default:
		return status.Errorf(status.Internal, "model '%s': %w", x.m.binding.Sig.Model, x.lib.check(st))
	}
}

// retry runs again without memory for the outputs. If that succeeds, the symbolic names of dimensions were wrong, and later
// executions do not rely on them.
func (x *instance) retry(ctx context.Context, b *backends.Batch, first error) error {
	for i := range b.Out {
		b.Out[i].Release()
	}
	if _, err := x.outputs(b, false); err != nil {
		return err
	}
	err := x.run(ctx, b)
	if errors.Is(err, status.ErrCancelled) {
		return err
	}
	if err != nil {
		return first
	}
	x.m.unsure.Store(true)
	return x.take(b)
}

// inputs sets the inputs of the call.
func (x *instance) inputs(b *backends.Batch) error {
	for i := range b.In {
		t, v, p := &b.In[i], &x.in[i], &x.m.binding.In[i]
		v.use = 0
		if !t.Present() {
			continue
		}
		if t.DType != p.DType || t.Shape.Rank() > C.TT_MAX_RANK {
			return x.m.binding.UnexpectedInput(i, t)
		}
		v.use = 1
		v.data, v.bytes = t.Pointer(), C.size_t(t.Len)
		v._type, v.device = p.Native.ort, flag(t.Buf.Place().Kind == tensor.Device)
		if !resize(v, t.Shape.Dims(), p.Reshape) {
			return x.m.binding.UnexpectedInput(i, t)
		}
	}
	return nil
}

// resize sets the shape of v to dims, mapped by r. It returns false when the rank is too large.
func resize(v *C.tt_value, dims []int64, r bind.Extents) bool {
	n, ok := r.Apply((*[C.TT_MAX_RANK]int64)(unsafe.Pointer(&v.dims))[:], dims)
	v.rank = C.int(n)
	return ok
}

// outputs sets the memory of the outputs. With guess it allocates those with a known shape; guessed reports whether there are any.
func (x *instance) outputs(b *backends.Batch, guess bool) (guessed bool, err error) {
	for i := range x.out {
		v, p := &x.out[i], &x.m.binding.Out[i]
		v.use, v.given, v._type = 1, 0, p.Native.ort
		v.device = flag(x.stream != nil && p.DType != tensor.Bytes)
		if !guess || p.Native.known == nil || !x.follow(v, p.Native.known) {
			continue
		}
		t, err := b.Alloc(i, p.DType, shapeOf(v))
		if err != nil {
			return false, x.m.binding.OutputError(i, err)
		}
		v.given, v.data, v.bytes = 1, t.Pointer(), C.size_t(t.Len)
		guessed = true
	}
	return guessed, nil
}

// follow derives the shape of v from the inputs. It returns false when an input that it needs is absent.
func (x *instance) follow(v *C.tt_value, shape []bind.Extent) bool {
	v.rank = C.int(len(shape))
	for k, e := range shape {
		if e.Axis < 0 {
			v.dims[k] = C.int64_t(e.N)
			continue
		}
		src := &x.in[e.From]
		if src.use == 0 || e.Axis >= int(src.rank) {
			return false
		}
		v.dims[k] = src.dims[e.Axis]
	}
	return true
}

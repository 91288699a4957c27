package onnx

/*
#cgo noescape tt_run
#cgo nocallback tt_run
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
	watch   bind.Watch
	at      tensor.Place
	stream  nativeStream // nil on the host
	gpu     *gpuRun      // nil on the host
}

var _ backends.Instance = (*instance)(nil)

func newInstance(m *model, s *session) (*instance, error) {
	if s.s == nil {
		return nil, status.Reasonf(status.ModelNotReady, "model '%s' is closed", m.Sig.Model)
	}
	l, made := s.lib.retain(), new(*C.tt_call)
	err := l.check(C.tt_call_new(l.rt, s.s, C.size_t(len(m.In)), C.size_t(len(m.Out)), made))
	call := *made
	if call == nil || err != nil {
		C.tt_call_free(call)
		l.release()
		return nil, status.Errorf(status.Internal, "no memory for an instance of model '%s'", m.Sig.Model)
	}
	x := &instance{m: m, lib: l, call: call, in: unsafe.Slice(call.in, len(m.In)), out: unsafe.Slice(call.out, len(m.Out))}
	x.watch.Stop = func() { C.tt_stop_run(call) }
	x.buffers = bind.NewBuffers(func(handle unsafe.Pointer) {
		C.tt_release(l.rt, (*C.OrtValue)(handle))
		if x.gpu != nil && x.gpu.memory != nil {
			x.gpu.memory.end()
		}
		l.release()
	})
	for i := range m.In {
		C.tt_call_name(call, 0, C.size_t(i), cstr(m.In[i].Name))
	}
	for i := range m.Out {
		C.tt_call_name(call, 1, C.size_t(i), cstr(m.Out[i].Name))
	}
	if m.shrink != "" {
		if err = l.check(C.tt_call_option(call, cstr("memory.enable_memory_arena_shrinkage"), cstr(m.shrink))); err != nil {
			_ = x.Close()
			return nil, status.Prefixf(err, "model '%s': ", m.Sig.Model)
		}
	}
	return x, nil
}

// bindRuns makes executions use an OrtIoBinding, whose outputs the runtime allocates at a CUDA device, or on the host when device
// is negative.
func (x *instance) bindRuns(device int) error {
	return x.lib.check(C.tt_call_bind(x.call, C.int(device)))
}

// Close frees the call, on a GPU with the session. Outputs of earlier executions stay valid.
func (x *instance) Close() error {
	if x.call == nil {
		return nil
	}
	C.tt_call_free(x.call)
	x.call, x.in, x.out = nil, nil, nil
	var err error
	if x.gpu != nil {
		err = x.gpu.close()
	}
	x.lib.release()
	return err
}

// Execute runs the model with one call of C code. Outputs whose shape is known before the run are written to memory of the batch;
// the others stay in memory of the runtime, without a copy.
//
// On a GPU it puts the work into the stream of the batch and returns.
//
// hot: no allocation in the steady state.
func (x *instance) Execute(ctx context.Context, b *backends.Batch) error {
	if err := x.m.CheckExecute(ctx, x.call != nil, b); err != nil {
		return err
	}
	if x.gpu != nil {
		defer x.gpu.release()
	}
	if err := x.inputs(b); err != nil {
		return err
	}
	if x.gpu != nil && x.gpu.graphs != nil {
		return x.executeCaptured(ctx, b)
	}
	guessed, err := x.outputs(b, !x.m.unsure.Load())
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
	x.watch.Begin(ctx, b)
	var st *C.OrtStatus
	if x.gpu == nil {
		st = C.tt_run(x.call)
	} else {
		st = x.gpu.run(x.call)
		x.gpu.work.Used()
	}
	stopped := x.watch.End()
	if stopped {
		C.tt_resume(x.call)
	}
	switch {
	case st == nil:
		return nil
	case stopped:
		C.tt_forget(x.lib.rt, st)
		return status.ErrCancelled
	}
	err := x.lib.check(st)
	if x.gpu == nil {
		return x.m.Errorf(status.Internal, "%w", err)
	}
	return status.Prefixf(x.gpu.because(err), "model '%s': ", x.m.Sig.Model)
}

// retry runs again without memory for the outputs. If that succeeds, the symbolic names of dimensions were wrong, and later
// executions do not rely on them.
func (x *instance) retry(ctx context.Context, b *backends.Batch, first error) error {
	tensor.ReleaseAll(b.Out)
	if _, err := x.outputs(b, false); err != nil {
		return err
	}
	if err := x.run(ctx, b); errors.Is(err, status.ErrCancelled) {
		return err
	} else if err != nil {
		return first
	}
	x.m.unsure.Store(true)
	return x.take(b)
}

// inputs sets the inputs of the call.
func (x *instance) inputs(b *backends.Batch) error {
	for i := range b.In {
		t, v, p := &b.In[i], &x.in[i], &x.m.In[i]
		v.use = 0
		if !t.Present() {
			continue
		}
		n, ok := p.Reshape.Apply((*[bind.MaxRank]int64)(unsafe.Pointer(&v.dims))[:], t.Shape.Dims())
		if !ok || t.DType != p.DType || t.Shape.Rank() > bind.MaxRank {
			return x.m.UnexpectedInput(i, t)
		}
		v.use, v.data, v.bytes = 1, t.Pointer(), C.size_t(t.Len)
		v._type, v.rank, v.device = p.Native.ort, C.int(n), flag(t.Buf.Place().Kind == tensor.Device)
		if v.device != 0 && x.gpu.hostIn[i] {
			at, err := x.gpu.toHost(t)
			if err != nil {
				return x.m.InputErrorf(i, status.CodeOf(err), "%w", err)
			}
			v.data, v.device = at, 0
		}
	}
	if x.gpu == nil {
		return nil
	}
	return x.gpu.arrive()
}

// outputs sets the memory of the outputs. With guess it allocates those with a known shape; guessed reports whether there are any.
func (x *instance) outputs(b *backends.Batch, guess bool) (guessed bool, err error) {
	for i := range x.out {
		v, p := &x.out[i], &x.m.Out[i]
		v.use, v.given, v._type = 1, 0, p.Native.ort
		v.device = flag(x.gpu != nil && p.DType != tensor.Bytes && !x.gpu.hostOut[i])
		if x.gpu != nil && v.device == 0 {
			continue
		}
		if !guess || p.Native.known == nil || !x.follow(v, p.Native.known) {
			continue
		}
		t, err := b.Alloc(i, p.DType, bind.ShapeAt(unsafe.Pointer(&v.dims), int(v.rank)))
		if err != nil {
			return false, x.m.OutputError(i, err)
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
			err = x.m.ReshapeOutput(i, &b.Out[i])
		}
	}
	return err
}

// wrap sets output i to the tensor that the runtime allocated. Strings are copied, and so is an input that the model passes
// through: it is the caller's memory, which is not valid after the execution.
func (x *instance) wrap(b *backends.Batch, i int) error {
	v, p := &x.out[i], &x.m.Out[i]
	number := int(v._type)
	if v.value == nil {
		number = -1
	}
	if err := x.m.CheckOutput(i, ortTypes, int(p.Native.ort), number, int(v.rank)); err != nil {
		return err
	}
	shape := bind.ShapeAt(unsafe.Pointer(&v.dims), int(v.rank))
	if p.DType == tensor.Bytes {
		return x.strings(b, i, shape)
	}
	n := int(shape.Elements()) * p.DType.Size()
	for k := range x.in {
		in := &x.in[k]
		if in.use == 0 || !bind.Within(v.data, in.data, int(in.bytes)) {
			continue
		}
		switch {
		case x.gpu == nil:
			return bind.CopyOutput(b, i, p.DType, shape, v.data, n)
		case in.device == 0:
			return x.gpu.copyOut(b, i, p.DType, shape, unsafe.Slice((*byte)(v.data), n))
		}
		t := b.In[k].Retain()
		t.Off, t.Len, t.Shape = t.Off+int(uintptr(v.data)-uintptr(in.data)), n, shape
		b.SetOutput(i, t)
		return nil
	}
	x.lib.retain()
	at := tensor.Place{}
	if v.device != 0 {
		at = x.at
	}
	t := x.buffers.Wrap(unsafe.Pointer(v.value), v.data, n, at, p.DType, shape)
	v.value = nil
	if x.gpu != nil && v.device == 0 {
		return x.gpu.toDevice(b, i, t)
	}
	b.SetOutput(i, t)
	return nil
}

// strings copies the strings of output i to memory of the batch.
func (x *instance) strings(b *backends.Batch, i int, shape tensor.Shape) error {
	n := int(shape.Elements())
	t, err := b.AllocBytes(i, shape, int(x.out[i].bytes)+tensor.EncodedLen(0)*n)
	if err != nil {
		return x.m.OutputError(i, err)
	}
	if st := C.tt_take_strings(x.call, C.size_t(i), C.size_t(n), (*C.char)(t.Pointer())); st != nil {
		return x.m.Errorf(status.Internal, "%w", x.lib.check(st))
	}
	return nil
}

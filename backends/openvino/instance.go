package openvino

/*
#include <stdlib.h>
#include "shim.h"
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

// instance executes batches with an infer request and reusable C memory, so that an execution does not allocate and C code never
// holds a Go pointer.
type instance struct {
	m       *model
	lib     *library
	call    *C.tov_call
	in, out []C.tov_value // the call's, in C memory
	scratch []scratch     // for each input: memory for strings and padding
	buffers *bind.Buffers // of outputs, each of which holds the library
}

var _ backends.Instance = (*instance)(nil)

func newInstance(m *model) (*instance, error) {
	c := m.compiled
	if c.c == nil {
		return nil, status.Errorf(status.Unavailable, "model '%s' is closed", m.binding.Sig.Model)
	}
	ins, outs := m.binding.In, m.binding.Out
	call := new(*C.tov_call)
	if err := check(C.tov_call_new(c.lib.f, c.c, C.size_t(len(ins)), C.size_t(len(outs)), call)); err != nil {
		return nil, status.Prefixf(err, "model '%s': ", m.binding.Sig.Model)
	}
	x := &instance{m: m, lib: c.lib.retain(), buffers: newBuffers(c.lib), call: *call, scratch: make([]scratch, len(ins))}
	x.in = unsafe.Slice(x.call.in, len(ins))
	x.out = unsafe.Slice(x.call.out, len(outs))
	for i := range ins {
		x.in[i].port, x.in[i]._type = ins[i].Native.handle, ins[i].Native.ov
	}
	for i := range outs {
		x.out[i].port, x.out[i]._type, x.out[i].lent = outs[i].Native.handle, outs[i].Native.ov, flag(outs[i].Native.lent)
	}
	return x, nil
}

// Close frees the infer request. Outputs of earlier executions stay valid.
func (x *instance) Close() error {
	if x.call == nil {
		return nil
	}
	C.tov_call_free(x.call)
	for i := range x.scratch {
		x.scratch[i].free()
	}
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
	guessed, err := x.outputs(b, !x.m.unsure.Load())
	if err != nil {
		return err
	}
	err = x.run(ctx)
	if err == nil && !x.moved() {
		return x.take(b)
	}
	if !guessed || status.CodeOf(err) == status.Cancelled {
		return err
	}
	return x.retry(ctx, b, err)
}

// retry runs again without memory for the outputs. If that succeeds, the first dimension of an output is not the batch.
func (x *instance) retry(ctx context.Context, b *backends.Batch, first error) error {
	for i := range b.Out {
		b.Out[i].Release()
	}
	if _, err := x.outputs(b, false); err != nil {
		return err
	}
	if err := x.run(ctx); err != nil {
		if first == nil || status.CodeOf(err) == status.Cancelled {
			return err
		}
		return first
	}
	x.m.unsure.Store(true)
	return x.take(b)
}

// moved reports whether an output has another shape than the memory that it was given.
func (x *instance) moved() bool {
	for i := range x.out {
		if x.out[i].moved != 0 {
			return true
		}
	}
	return false
}

// inputs sets the inputs of the call.
func (x *instance) inputs(b *backends.Batch) error {
	for i := range b.In {
		if err := x.input(i, &b.In[i]); err != nil {
			return err
		}
	}
	return nil
}

func (x *instance) input(i int, t *tensor.Tensor) error {
	v, p := &x.in[i], &x.m.binding.In[i]
	if !t.Present() {
		return status.Errorf(status.InvalidArg, "model '%s', input '%s': expected a %s tensor, got none", x.m.binding.Sig.Model, p.Name, p.DType)
	}
	dims := t.Shape.Dims()
	n := len(dims) - p.Native.ones
	if t.DType != p.DType || !x.fits(p, dims) {
		return x.m.binding.UnexpectedInput(i, t)
	}
	v.rank = C.int(n)
	for k, d := range dims[:n] {
		v.dims[k] = C.int64_t(d)
	}
	missing, err := x.missing(dims)
	if err != nil {
		return err
	}
	if missing > 0 {
		v.dims[0] = C.int64_t(x.m.fixed)
	}
	if p.DType == tensor.Bytes {
		return x.strings(i, t, missing)
	}
	if int64(t.Len) != t.Shape.Elements()*int64(p.DType.Size()) {
		return status.Errorf(status.InvalidArg, "model '%s', input '%s': expected %d bytes for a %s tensor of shape %s, got %d",
			x.m.binding.Sig.Model, p.Name, t.Shape.Elements()*int64(p.DType.Size()), p.DType, t.Shape, t.Len)
	}
	v.data = t.Pointer()
	if missing > 0 {
		v.data = x.scratch[i].padded(t.Bytes(), t.Len/max(1, int(dims[0]))*int(x.m.fixed))
	}
	return nil
}

// fits reports whether the model accepts these dimensions, apart from the batch.
func (x *instance) fits(p *boundPort, dims []int64) bool {
	n := len(dims) - p.Native.ones
	if n < 0 || n > C.TOV_MAX_RANK || !p.AnyRank && n != len(p.Shape) {
		return false
	}
	for k, d := range p.Shape {
		if d != -1 && d != dims[k] && (k > 0 || x.m.fixed == 0) {
			return false
		}
	}
	for _, d := range dims[n:] {
		if d != 1 {
			return false
		}
	}
	return true
}

// outputs sets the memory of the outputs. With guess it allocates those with a known shape; guessed reports whether there are any.
func (x *instance) outputs(b *backends.Batch, guess bool) (guessed bool, err error) {
	padded := x.m.fixed > int64(b.Rows)
	for i := range x.out {
		v, p := &x.out[i], &x.m.binding.Out[i]
		v.given = 0
		known := guess && p.Native.known && !padded
		x.shape(v, p, b.Rows, known)
		if !known {
			continue
		}
		t, err := b.Alloc(i, p.DType, shapeOf(v))
		if err != nil {
			return false, x.m.binding.OutputError(i, err)
		}
		v.given, v.data = 1, t.Pointer()
		guessed = true
	}
	return guessed, nil
}

// shape sets the shape of an output, or an initial one when it is not known.
func (x *instance) shape(v *C.tov_value, p *boundPort, rows int, known bool) {
	v.rank = C.int(len(p.Shape))
	if p.AnyRank {
		v.rank, v.dims[0] = 1, 0
	}
	for k, d := range p.Shape {
		if d == -1 {
			d = 0
		}
		v.dims[k] = C.int64_t(d)
	}
	if known && x.m.binding.Sig.MaxBatch > 0 {
		v.dims[0] = C.int64_t(rows)
	}
}

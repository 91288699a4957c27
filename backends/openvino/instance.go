package openvino

/*
#cgo noescape tov_run
#cgo nocallback tov_run
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"bytes"
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
	buffers *bind.Buffers
	watch   bind.Watch
}

var _ backends.Instance = (*instance)(nil)

func newInstance(m *model) (*instance, error) {
	c := m.compiled
	if c.c == nil {
		return nil, status.Reasonf(status.ModelNotReady, "model '%s' is closed", m.Sig.Model)
	}
	made := new(*C.tov_call)
	if err := check(C.tov_call_new(c.lib.f, c.c, C.size_t(len(m.In)), C.size_t(len(m.Out)), made)); err != nil {
		return nil, status.Prefixf(err, "model '%s': ", m.Sig.Model)
	}
	call, f := *made, c.lib.f
	x := &instance{
		m: m, lib: c.lib, call: call, scratch: make([]scratch, len(m.In)),
		in: unsafe.Slice(call.in, len(m.In)), out: unsafe.Slice(call.out, len(m.Out)),
		buffers: bind.NewBuffers(func(handle unsafe.Pointer) { C.tov_release(f, (*C.ov_tensor)(handle)) }),
	}
	x.watch.Stop = func() { C.tov_cancel(call) } // a request that has not started yet ignores it
	for i := range x.in {
		x.in[i].port, x.in[i]._type = m.In[i].Native.handle, m.In[i].Native.ov
	}
	for i := range x.out {
		own := &m.Out[i].Native
		x.out[i].port, x.out[i]._type, x.out[i].lent = own.handle, own.ov, flag(own.lent)
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
	return nil
}

// Execute runs the model with one call of C code. Outputs whose shape is known before the run are written to memory of the batch;
// the others stay in memory of the runtime, without a copy.
//
// hot: no allocation in the steady state.
func (x *instance) Execute(ctx context.Context, b *backends.Batch) error {
	if err := x.m.CheckExecute(ctx, x.call != nil, b); err != nil {
		return err
	}
	for i := range b.In {
		if err := x.input(i, &b.In[i]); err != nil {
			return err
		}
	}
	guessed, err := x.outputs(b, !x.m.unsure.Load())
	if err != nil {
		return err
	}
	err = x.run(ctx, b)
	if err == nil && !x.moved() {
		return x.take(b)
	}
	if !guessed || status.CodeOf(err) == status.Cancelled {
		return err
	}
	return x.retry(ctx, b, err)
}

// run runs the model once. When all requests are cancelled it stops between two nodes of the graph.
func (x *instance) run(ctx context.Context, b *backends.Batch) error {
	x.watch.Begin(ctx, b)
	e := C.tov_run(x.call)
	stopped := x.watch.End()
	if e.text == nil {
		return nil
	}
	err := check(e)
	if stopped || ctx.Err() != nil {
		return status.ErrCancelled
	}
	return status.Errorf(status.CodeOf(err), "model '%s': %w", x.m.Sig.Model, err)
}

// retry runs again without memory for the outputs. If that succeeds, the first dimension of an output is not the batch.
func (x *instance) retry(ctx context.Context, b *backends.Batch, first error) error {
	tensor.ReleaseAll(b.Out)
	if _, err := x.outputs(b, false); err != nil {
		return err
	}
	if err := x.run(ctx, b); err != nil {
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

// input sets input i of the call. A batch that is smaller than the model's fixed size is padded.
func (x *instance) input(i int, t *tensor.Tensor) error {
	v, p := &x.in[i], &x.m.In[i]
	if !t.Present() {
		return x.m.InputErrorf(i, status.InvalidArg, "expected a %s tensor, got none", p.DType)
	}
	dims := (*[bind.MaxRank]int64)(unsafe.Pointer(&v.dims))[:]
	n, ok := p.Reshape.Apply(dims, t.Shape.Dims())
	if !ok || t.DType != p.DType || !x.fits(p, dims[:n]) {
		return x.m.UnexpectedInput(i, t)
	}
	v.rank = C.int(n)
	missing := int64(0) // rows of a batch of the model's fixed size
	if fixed := x.m.fixed; fixed != 0 && n > 0 && dims[0] != fixed {
		if !x.m.pad || dims[0] > fixed {
			return x.m.Errorf(status.InvalidArg, "expected a batch of exactly %d rows, got %d (parameter %s YES makes a smaller one up)", fixed, dims[0], keyPad)
		}
		missing, dims[0] = fixed-dims[0], fixed
	}
	if p.DType == tensor.Bytes {
		return x.strings(i, t, missing)
	}
	if want := t.Shape.Elements() * int64(p.DType.Size()); int64(t.Len) != want {
		return x.m.InputErrorf(i, status.InvalidArg, "expected %d bytes for a %s tensor of shape %s, got %d", want, p.DType, t.Shape, t.Len)
	}
	v.data = t.Pointer()
	if missing > 0 {
		v.data = x.scratch[i].padded(t.Bytes(), t.Len/max(1, int(dims[0]-missing))*int(dims[0]))
	}
	return nil
}

// fits reports whether the model accepts these dimensions, apart from the batch.
func (x *instance) fits(p *bind.Bound[native], dims []int64) bool {
	if p.AnyRank {
		return true
	}
	if len(dims) != len(p.Shape) {
		return false
	}
	for k, d := range p.Shape {
		if d != -1 && d != dims[k] && (k > 0 || x.m.fixed == 0) {
			return false
		}
	}
	return true
}

// outputs sets the memory of the outputs. With guess it allocates those with a known shape; guessed reports whether there are any.
// The others get an initial shape.
func (x *instance) outputs(b *backends.Batch, guess bool) (guessed bool, err error) {
	guess = guess && x.m.fixed <= int64(b.Rows)
	for i := range x.out {
		v, p := &x.out[i], &x.m.Out[i]
		v.given, v.rank = 0, C.int(len(p.Shape))
		if p.AnyRank {
			v.rank, v.dims[0] = 1, 0
		}
		for k, d := range p.Shape {
			v.dims[k] = C.int64_t(max(d, 0))
		}
		if !guess || !p.Native.known {
			continue
		}
		if x.m.Sig.MaxBatch > 0 {
			v.dims[0] = C.int64_t(b.Rows)
		}
		t, err := b.Alloc(i, p.DType, bind.ShapeAt(unsafe.Pointer(&v.dims), int(v.rank)))
		if err != nil {
			return false, x.m.OutputError(i, err)
		}
		v.given, v.data, guessed = 1, t.Pointer(), true
	}
	return guessed, nil
}

// take sets the outputs of a successful run in the batch.
func (x *instance) take(b *backends.Batch) (err error) {
	for i := range x.out {
		v := &x.out[i]
		if v.given == 0 && err == nil {
			err = x.output(b, i)
		}
		if v.tensor != nil { // copied, or after an error
			C.tov_release(x.lib.f, v.tensor)
			v.tensor = nil
		}
		if err == nil {
			err = x.m.ReshapeOutput(i, &b.Out[i])
		}
	}
	return err
}

// output sets output i to the result of the run.
func (x *instance) output(b *backends.Batch, i int) error {
	v, p := &x.out[i], &x.m.Out[i]
	if v.rank > bind.MaxRank {
		return x.m.OutputErrorf(i, status.Internal, "expected at most %d dimensions, got %d", bind.MaxRank, v.rank)
	}
	shape := bind.ShapeAt(unsafe.Pointer(&v.dims), int(v.rank))
	elements := shape.Elements()
	if fixed := x.m.fixed; fixed > int64(b.Rows) && shape.Rank() > 0 && shape.Dim(0) == fixed {
		shape.SetDim(0, int64(b.Rows))
		v.dims[0] = C.int64_t(b.Rows)
		v.elements = C.size_t(shape.Elements())
	}
	if p.DType == tensor.Bytes {
		return x.stringsOut(b, i, shape, int(elements))
	}
	n := int(shape.Elements()) * p.DType.Size()
	if p.Native.lent || shape.Elements() != elements {
		return bind.CopyOutput(b, i, p.DType, shape, v.data, n)
	}
	b.SetOutput(i, x.buffers.Wrap(unsafe.Pointer(v.tensor), v.data, n, tensor.Place{}, p.DType, shape))
	v.tensor = nil
	return nil
}

// scratch is C memory for one input, reused by each execution.
type scratch struct {
	text, list       unsafe.Pointer
	textLen, listLen int
}

func (s *scratch) free() {
	C.free(s.text)
	C.free(s.list)
	*s = scratch{}
}

// room grows text to at least that many bytes, and list to that many pointers.
func (s *scratch) room(text, list int) {
	if text > s.textLen {
		C.free(s.text)
		s.text, s.textLen = C.malloc(C.size_t(text)), text
	}
	if list > s.listLen {
		C.free(s.list)
		s.list, s.listLen = C.malloc(C.size_t(list)*C.size_t(unsafe.Sizeof(uintptr(0)))), list
	}
}

// padded copies rows to memory of the given size and clears the rest.
func (s *scratch) padded(rows []byte, size int) unsafe.Pointer {
	s.room(max(size, 1), 0)
	to := unsafe.Slice((*byte)(s.text), size)
	clear(to[copy(to, rows):])
	return s.text
}

// strings copies the elements of an input to zero-terminated strings, which the runtime needs. missing rows become empty strings.
func (x *instance) strings(i int, t *tensor.Tensor, missing int64) error {
	v, s := &x.in[i], &x.scratch[i]
	n, total := int(t.Shape.Elements()), 1
	for _, d := range v.dims[:v.rank] {
		total *= int(d)
	}
	rest := t.Bytes()
	if n < 0 || n > len(rest)/tensor.EncodedLen(0) { // checked before memory is allocated
		return x.unusable(i, len(rest)/tensor.EncodedLen(0), false)
	}
	s.room(len(rest)+1, total+1) // a zero takes less than the length, and one more is for missing rows
	text := unsafe.Slice((*byte)(s.text), len(rest)+1)
	list := unsafe.Slice((*uintptr)(s.list), total+1) // C memory, which the garbage collector does not scan
	at := 0
	for k := range n {
		elem, next, ok := tensor.NextBytes(rest)
		if !ok || bytes.IndexByte(elem, 0) >= 0 {
			return x.unusable(i, k, ok)
		}
		list[k] = uintptr(unsafe.Pointer(&text[at]))
		at += copy(text[at:], elem)
		text[at], rest = 0, next
		at++
	}
	if len(rest) > 0 {
		return x.unusable(i, n, false)
	}
	text[len(text)-1] = 0
	for k := n; k < total && missing > 0; k++ {
		list[k] = uintptr(unsafe.Pointer(&text[len(text)-1]))
	}
	v.text, v.elements = (**C.char)(s.list), C.size_t(total)
	return nil
}

func (x *instance) unusable(i, k int, whole bool) error {
	if !whole {
		return x.m.InputErrorf(i, status.InvalidArg, "the BYTES tensor is cut or too long at element %d", k)
	}
	return x.m.InputErrorf(i, status.InvalidArg, "element %d has a zero byte, which OpenVINO does not take in a string", k)
}

// stringsOut copies the elements of an output. made is the number of elements that the runtime created.
func (x *instance) stringsOut(b *backends.Batch, i int, shape tensor.Shape, made int) error {
	v := &x.out[i]
	wanted := v.elements
	v.elements = C.size_t(made)
	n := C.tov_strings_len(x.lib.f, v, wanted)
	v.elements = wanted
	if n < 0 {
		return x.m.OutputErrorf(i, status.Internal, "strings of OpenVINO %s cannot be read", x.lib.version)
	}
	t, err := b.AllocBytes(i, shape, int(n))
	if err != nil || n == 0 {
		return err
	}
	C.tov_strings(v, (*C.uchar)(t.Pointer()))
	return nil
}

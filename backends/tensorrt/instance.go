//go:build cgo

package tensorrt

/*
#cgo noescape tttrt_shapes
#cgo nocallback tttrt_shapes
#include <stdlib.h>
#include "trt.h"
*/
import "C"

import (
	"context"
	"errors"
	"runtime/cgo"
	"unsafe"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/cuda"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// alignment is what TensorRT demands of addresses at a device.
const alignment = 256

// execution is an execution context of TensorRT's, with one profile.
type execution struct {
	profile int
	c       *C.tt_trt_run
	in, out []C.tt_trt_value // in C memory, in the order of the binding; outputs that nobody reads come last
}

// instance executes batches at one device. Its executions share the memory that they need besides their tensors: they are ordered on
// the instance's stream.
type instance struct {
	m          *model
	e          *engine
	stream     *cuda.Stream
	executions []execution
	profile    int // of the last batch, for ON_PROFILE_CHANGE
	scratch    *tensor.Buffer
	owner      cgo.Handle
	waits      bool // a tensor on the host is complete when the stream is

	// Of the current batch:
	batch  *backends.Batch
	dims   []extent // of the inputs
	values [][]int64
	hosted []unsafe.Pointer // C memory of the inputs and then the outputs that are on the host; nil for the others
	spare  []*tensor.Buffer // aligned copies, and outputs that nobody reads
	owned  []*tensor.Buffer // by output, what TensorRT asked for
	failed error            // of an allocation that TensorRT asked for
}

// extent is a shape in the form of TensorRT's.
type extent struct {
	rank int
	d    [C.TT_TRT_RANK]int64
}

func (e *extent) dims() []int64 { return e.d[:e.rank] }

var _ backends.DeviceInstance = (*instance)(nil)

// newInstance returns an instance with one execution context for each profile.
func newInstance(m *model, e *engine, profiles []int) (_ *instance, err error) {
	x := &instance{m: m, e: e, profile: -1}
	x.owner = cgo.NewHandle(x)
	defer func() {
		e.rt.report()
		if err != nil {
			err = errors.Join(err, x.Close())
		}
	}()
	priority := 0
	if m.settings.Config.GetOptimization().GetPriority() == modelconfig.ModelOptimizationPolicy_PRIORITY_MAX {
		priority = -1000 // the device's highest
	}
	if x.stream, err = e.device.Open(m.Sig.Model, priority); err != nil {
		return nil, m.Errorf(status.Unavailable, "%w", err)
	}
	handle, err := x.stream.Handle()
	if err != nil {
		return nil, m.Errorf(status.CodeOf(err), "%w", err)
	}
	for _, profile := range profiles {
		if err := x.addExecution(profile, handle); err != nil {
			return nil, err
		}
	}
	x.dims = make([]extent, len(m.In))
	x.owned = make([]*tensor.Buffer, len(m.Out)+len(m.extra))
	x.hostMemory()
	if !m.onChange {
		most := int64(0)
		for _, profile := range profiles {
			most = max(most, e.memory(profile))
		}
		if err := x.reserve(most); err != nil {
			return nil, err
		}
	}
	return x, nil
}

// addExecution makes the context of a profile.
func (x *instance) addExecution(profile int, stream unsafe.Pointer) error {
	m := x.m
	outs := len(m.Out) + len(m.extra)
	var w why
	c := C.tttrt_run_new(x.e.rt.c, x.e.engine, C.int32_t(profile), C.int32_t(len(m.In)), C.int32_t(outs), stream, &w[0])
	if c == nil {
		return m.Errorf(status.Unavailable, "unable to create TensorRT context with profile %d at %s: %s", profile, x.e.device.Place(), w.text())
	}
	x.stream.Used()
	c.owner = C.uintptr_t(x.owner)
	e := execution{profile, c, unsafe.Slice(c.in, len(m.In)), unsafe.Slice(c.out, outs)}
	for i := range m.In {
		e.in[i].name, e.in[i].dims.rank = m.In[i].Native.name, -1
		if m.In[i].Native.shape {
			c.infer = 1
		}
	}
	for i := range e.out {
		e.out[i].name = x.outputPort(i).Native.name
	}
	x.executions = append(x.executions, e)
	return nil
}

// outputPort returns output i of the plan in the order of the executions.
func (x *instance) outputPort(i int) *port {
	if i < len(x.m.Out) {
		return &x.m.Out[i].Port
	}
	return &x.m.extra[i-len(x.m.Out)]
}

// hostMemory makes the memory of the tensors on the host, which has a fixed size: shape tensors.
func (x *instance) hostMemory() {
	add := func(p *port) {
		var memory unsafe.Pointer
		var values []int64
		if p.Native.host {
			n := max(1, tensor.Of(p.Native.dims...).Elements())
			memory = C.calloc(C.size_t(n), 8)
			values = make([]int64, n)
			x.waits = true
		}
		x.hosted, x.values = append(x.hosted, memory), append(x.values, values)
	}
	for i := range x.m.In {
		add(&x.m.In[i].Port)
	}
	for i := range x.owned {
		add(x.outputPort(i))
	}
}

// reserve makes the memory of executions at least n bytes. What was there is released behind the stream's work.
func (x *instance) reserve(n int64) error {
	if x.scratch != nil && int64(x.scratch.Len()) >= n {
		return nil
	}
	x.releaseScratch()
	b, err := x.stream.AllocNative(int(n))
	if err != nil {
		x.profile = -1 // the contexts have released memory: every profile needs new one first
		return status.Prefixf(err, "model '%s': no memory for executions with TensorRT: ", x.m.Sig.Model)
	}
	x.scratch = b
	for i := range x.executions {
		c := x.executions[i].c
		c.scratch, c.bytes, c.memory = b.Pointer(), C.int64_t(b.Len()), 1
	}
	return nil
}

func (x *instance) releaseScratch() {
	if x.scratch != nil {
		x.scratch.UsedUntil(x.stream.Record())
		x.scratch.Release()
		x.scratch = nil
	}
}

// Stream implements backends.DeviceInstance.
func (x *instance) Stream() tensor.Stream { return x.stream }

// Close waits for the stream and releases the contexts. Outputs of earlier executions stay valid.
func (x *instance) Close() error {
	if x.owner == 0 {
		return nil
	}
	x.owner.Delete()
	x.owner = 0
	var err error
	if x.stream != nil {
		err = x.stream.Record().Wait()
	}
	for _, e := range x.executions {
		C.tttrt_run_free(e.c)
	}
	x.executions = nil
	x.releaseScratch()
	for _, p := range x.hosted {
		C.free(p)
	}
	x.hosted = nil
	if x.stream != nil {
		err = errors.Join(err, x.stream.Close())
	}
	return err
}

// Execute puts one execution into the stream, and waits for it only if the plan has tensors on the host.
//
// hot: no allocation in Go in the steady state.
func (x *instance) Execute(ctx context.Context, b *backends.Batch) error {
	if err := x.m.CheckExecute(ctx, x.owner != 0, b); err != nil {
		return err
	}
	if err := x.readShapes(b); err != nil {
		return err
	}
	e, err := x.choose(b.Rows)
	if err != nil {
		return err
	}
	x.batch, x.failed = b, nil
	err = x.run(e, b)
	x.finish()
	return err
}

// finish releases what the batch took besides its outputs, behind the work of the stream.
func (x *instance) finish() {
	x.batch = nil
	for i, o := range x.owned {
		if o != nil {
			x.spare = append(x.spare, o)
			x.owned[i] = nil
		}
	}
	if len(x.spare) == 0 {
		return
	}
	after := x.stream.Record()
	for i, s := range x.spare {
		s.UsedUntil(after)
		s.Release()
		x.spare[i] = nil
	}
	x.spare = x.spare[:0]
}

func (x *instance) run(e *execution, b *backends.Batch) error {
	if x.m.onChange && x.profile != e.profile {
		if err := x.reserve(x.e.memory(e.profile)); err != nil {
			return err
		}
		x.profile = e.profile
	}
	if err := x.bindInputs(e, b); err != nil {
		return err
	}
	if C.tttrt_shapes(e.c) != 0 {
		return x.refuse(e, status.InvalidArg)
	}
	if err := x.allocate(e, b); err != nil {
		return err
	}
	code := C.tttrt_enqueue(e.c)
	x.stream.Used()
	switch {
	case x.failed != nil:
		x.settle()
		return x.failed
	case code != 0:
		x.settle()
		return x.refuse(e, status.Internal)
	case e.c.logged != 0:
		x.e.rt.report()
	}
	if x.waits {
		if err := x.stream.Record().Wait(); err != nil {
			return x.m.Errorf(status.CodeOf(err), "%w", err)
		}
	}
	return x.take(e, b)
}

// settle waits for the work of a run that failed if it may read or write tensors on the host, which the next run writes.
func (x *instance) settle() {
	if x.waits {
		_ = x.stream.Record().Wait() // a lost device reads nothing any more
	}
}

// refuse returns TensorRT's error of a run.
func (x *instance) refuse(e *execution, code status.Code) error {
	x.e.rt.report()
	for i := range e.in {
		e.in[i].dims.rank = -1 // what TensorRT has of the shapes is not known
	}
	return x.m.Errorf(code, "TensorRT with profile %d: %s", e.profile, shorten(C.GoString(&e.c.why[0])))
}

// bindInputs sets the addresses and shapes of the inputs.
func (x *instance) bindInputs(e *execution, b *backends.Batch) error {
	for i := range b.In {
		v, p := &e.in[i], &x.m.In[i]
		if have := &x.dims[i]; !p.Native.shape && !sameDims(&v.dims, have) {
			v.changed, v.dims.rank = 1, C.int32_t(have.rank)
			copy((*[C.TT_TRT_RANK]int64)(unsafe.Pointer(&v.dims.d[0]))[:], have.d[:])
		}
		if p.Native.host {
			x.writeValues(i, p.DType)
			v.data = x.hosted[i]
			continue
		}
		t := &b.In[i]
		if t.Buf.Place() != x.stream.Place() {
			return x.m.InputErrorf(i, status.Internal, "expected memory at %s, found it at %s", x.stream.Place(), t.Buf.Place())
		}
		v.data = t.Pointer()
		if uintptr(v.data)%alignment != 0 {
			if err := x.align(v, t); err != nil {
				return x.m.InputErrorf(i, status.CodeOf(err), "%w", err)
			}
		}
	}
	return nil
}

// align makes an aligned copy of an input that is a part of a larger tensor.
func (x *instance) align(v *C.tt_trt_value, t *tensor.Tensor) error {
	c, err := x.stream.Alloc(t.Len)
	if err != nil {
		return err
	}
	x.spare = append(x.spare, c)
	v.data = c.Pointer()
	return x.stream.Copy(c, 0, t.Buf, t.Off, t.Len)
}

func sameDims(v *C.tt_trt_dims, e *extent) bool {
	if int(v.rank) != e.rank {
		return false
	}
	for k, d := range e.dims() {
		if int64(v.d[k]) != d {
			return false
		}
	}
	return true
}

// writeValues writes the values of a shape tensor to its memory.
func (x *instance) writeValues(i int, d tensor.DType) {
	values := x.values[i]
	if d == tensor.Int64 {
		copy(unsafe.Slice((*int64)(x.hosted[i]), len(values)), values)
		return
	}
	to := unsafe.Slice((*int32)(x.hosted[i]), len(values))
	for k, n := range values {
		to[k] = int32(n)
	}
}

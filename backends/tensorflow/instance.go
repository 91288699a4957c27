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
	"log/slog"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
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
	f := m.how.lib.f
	call := C.ttf_call_new(ses.c, C.size_t(len(m.In)), C.size_t(len(m.Out)))
	if call == nil {
		return nil, status.Errorf(status.Internal, "no memory for an instance of model '%s'", m.Sig.Model)
	}
	x := &instance{
		m: m, lib: m.how.lib, ses: ses, call: call, in: unsafe.Slice(call.in, len(m.In)), out: unsafe.Slice(call.out, len(m.Out)),
		buffers: bind.NewBuffers(func(handle unsafe.Pointer) { C.ttf_release(f, (*C.TF_Tensor)(handle)) }),
	}
	err := x.place(x.in, m.In, false)
	if err == nil {
		err = x.place(x.out, m.Out, true)
	}
	if err != nil {
		C.ttf_call_free(call)
		return nil, err
	}
	return x, nil
}

// place looks up the ports in the instance's session.
func (x *instance) place(values []C.ttf_value, ports []bind.Bound[native], output bool) error {
	for i := range ports {
		found, ok := x.ses.find(ports[i].Native.at)
		if !ok {
			return x.m.Errorf(status.InvalidArg, "%s '%s': the graph has no tensor '%s', which the signature names", bind.Side(output), ports[i].Name, ports[i].Native.at)
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
	if err := x.m.CheckExecute(ctx, x.call != nil, b); err != nil {
		return err
	}
	if len(x.retained) > 0 {
		if x.retained = releaseReturned(x.retained); len(x.retained) > 0 {
			x.m.copies.Store(true) // the model stores its inputs
		}
	}
	if err := x.inputs(b); err != nil {
		return err
	}
	var err error
	switch code := C.ttf_run(x.call); code {
	case 0:
		err = x.take(b)
	case C.TTF_UNFIT:
		err = x.m.UnexpectedInput(int(x.call.bad), &b.In[x.call.bad])
	case C.TTF_NO_MEMORY:
		err = x.m.InputErrorf(int(x.call.bad), status.Internal, "no memory for a copy")
	default:
		err = status.Prefixf(failure(code, C.ttf_call_text(x.call)), "model '%s': ", x.m.Sig.Model)
	}
	if lost := x.retain(b); err == nil {
		err = lost
	}
	return err
}

// inputs sets the inputs of the call.
func (x *instance) inputs(b *backends.Batch) error {
	own := C.int(0)
	if x.m.copies.Load() {
		own = 1
	}
	for i := range b.In {
		t, v, p := &b.In[i], &x.in[i], &x.m.In[i]
		v.use, v.copy = 0, own
		if !t.Present() {
			continue
		}
		rank, ok := p.Reshape.Apply((*[bind.MaxRank]int64)(unsafe.Pointer(&v.dims))[:], t.Shape.Dims())
		if !ok || t.DType != p.DType || t.Shape.Rank() > bind.MaxRank {
			return x.m.UnexpectedInput(i, t)
		}
		v.rank = C.int(rank)
		n := elements(v)
		if size := t.DType.Size(); n < 0 || size > 0 && (n > t.Len || n*size != t.Len) {
			return x.m.UnexpectedInput(i, t)
		}
		v.use, v.data, v.bytes, v.count, v._type = 1, t.Pointer(), C.size_t(t.Len), C.size_t(n), C.int(p.Native.tf)
	}
	return nil
}

// elements returns how many elements v's shape has, -1 where it is none or the runtime, which ends the process on
// overflow even where a later extent is 0, could not count them.
func elements(v *C.ttf_value) int {
	const most = 1 << 46
	n, empty := uint64(1), false
	for _, d := range v.dims[:v.rank] {
		if d < 0 || d > most {
			return -1
		}
		if d == 0 {
			empty = true
			continue
		}
		hi, lo := bits.Mul64(n, uint64(d))
		if n = lo; hi != 0 || lo > most {
			return -1
		}
	}
	if empty {
		return 0
	}
	return int(n) //nolint:gosec // at most 1<<46
}

// take sets the outputs of a successful run in the batch.
func (x *instance) take(b *backends.Batch) (err error) {
	for i := range x.out {
		v := &x.out[i]
		if err == nil {
			err = x.output(b, i)
		}
		if v.tensor != nil { // copied, or after an error
			C.ttf_release(x.lib.f, v.tensor)
			v.tensor = nil
		}
		if err == nil {
			err = x.m.ReshapeOutput(i, &b.Out[i])
		}
	}
	return err
}

// output sets output i to the tensor of the runtime, or to a copy.
func (x *instance) output(b *backends.Batch, i int) error {
	v, p := &x.out[i], &x.m.Out[i]
	if v.tensor == nil {
		return x.m.OutputErrorf(i, status.Internal, "the runtime gave none")
	}
	if err := x.m.CheckOutput(i, tfTypes, p.Native.tf, int(v._type), int(v.rank)); err != nil {
		return err
	}
	shape := bind.ShapeAt(unsafe.Pointer(&v.dims), int(v.rank))
	if p.DType == tensor.Bytes {
		t, err := b.AllocBytes(i, shape, int(v.bytes))
		if err != nil {
			return x.m.OutputError(i, err)
		}
		if t.Len > 0 {
			C.ttf_strings(x.lib.f, v, t.Pointer())
		}
		return nil
	}
	if v.sole == 0 || v.bytes == 0 {
		if err := bind.CopyOutput(b, i, p.DType, shape, v.data, int(v.bytes)); err != nil {
			return x.m.OutputError(i, err)
		}
		return nil
	}
	b.SetOutput(i, x.buffers.Wrap(unsafe.Pointer(v.tensor), v.data, int(v.bytes), tensor.Place{}, p.DType, shape))
	v.tensor = nil
	return nil
}

// retained is an input that the runtime still uses after its run, for example in a variable or a queue. It holds a reference to the
// tensor until the runtime releases the memory.
type retained struct {
	loan *C.ttf_loan
	t    tensor.Tensor
}

// releaseReturned releases the inputs that the runtime has released, and returns the others.
func releaseReturned(list []retained) []retained {
	return slices.DeleteFunc(list, func(k retained) bool {
		if C.ttf_lent(k.loan) != 0 {
			return false
		}
		C.free(unsafe.Pointer(k.loan))
		k.t.Release()
		return true
	})
}

// retain keeps references to those inputs of a finished run that the runtime still uses.
func (x *instance) retain(b *backends.Batch) error {
	for i := range x.in {
		v := &x.in[i]
		if v.use == 0 || C.ttf_lent(v.loan) == 0 {
			continue
		}
		x.retained = append(x.retained, retained{v.loan, b.In[i].Retain()})
		if v.loan = C.ttf_loan_new(); v.loan == nil {
			_ = x.Close()
			return status.Errorf(status.Internal, "no memory for an instance of model '%s'", x.m.Sig.Model)
		}
	}
	return nil
}

// binding has the bound ports of a model.
type binding = bind.Binding[native]

// model is a loaded model.
type model struct {
	*binding
	how loaded
	log *slog.Logger
	// copies is set when the runtime has retained an input after its run. From then on inputs are copied.
	copies atomic.Bool

	mu       sync.Mutex
	sessions []*session // guarded by mu
	retained []retained // of closed instances; guarded by mu
	closed   bool       // guarded by mu
}

var _ backends.ThreadedModel = (*model)(nil)

// load opens the first session and binds the configuration to the model.
func (m *model) load(s *backends.Settings, maxBatch int) (err error) {
	prefix := func(err error) error {
		return status.Prefixf(err, "unable to load model '%s' from '%s': ", s.Model, m.how.files.path)
	}
	if m.how.set.initOps != "" && !m.how.files.graph {
		return prefix(status.Errorf(status.InvalidArg, "parameter '%s' is for a GraphDef, a SavedModel names its own", keyInitOps))
	}
	if m.how.init, err = initOps(s, m.how.set.initOps); err != nil {
		return prefix(err)
	}
	ses, err := m.how.open()
	if err != nil {
		return prefix(m.how.files.unread(err))
	}
	m.sessions = append(m.sessions, ses)
	var ins, outs []port
	if m.how.files.graph {
		ins, outs, err = ses.graphPorts(s.Config)
	} else {
		ins, outs, err = ses.signaturePorts(m.how.set.signature)
	}
	if err != nil {
		return prefix(err)
	}
	if m.binding, err = bound(s.Config, ins, outs, maxBatch); err != nil {
		return status.Errorf(status.CodeOf(err), "%w (in '%s')", err, m.how.files.path)
	}
	m.Sig.Model, m.Sig.Version = s.Model, s.Version
	return nil
}

// Threads implements backends.ThreadedModel.
func (m *model) Threads() int { return m.how.set.threads() }

// NewInstance returns an executor on the host.
func (m *model) NewInstance(_ context.Context, at tensor.Place) (backends.Instance, error) {
	if err := bind.CheckHost("tensorflow", m.Sig.Model, at); err != nil {
		return nil, err
	}
	ses, err := m.session()
	if err != nil {
		return nil, err
	}
	x, err := newInstance(m, ses)
	if err != nil {
		m.leave(ses, nil)
	}
	return x, err
}

// session returns a session for another instance: the first one that may be shared, or a new one.
func (m *model) session() (*session, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, status.Reasonf(status.ModelNotReady, "model '%s' is closed", m.Sig.Model)
	}
	for _, s := range m.sessions {
		if s.users < m.how.set.share {
			s.users++
			return s, nil
		}
	}
	s, err := m.how.open()
	if err != nil {
		return nil, status.Prefixf(err, "unable to load model '%s' from '%s' for another instance: ", m.Sig.Model, m.how.files.path)
	}
	s.users++
	m.sessions = append(m.sessions, s)
	return s, nil
}

// leave releases an instance's use of a session. list are the inputs that the runtime still retains.
func (m *model) leave(s *session, list []retained) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s.users--
	m.retained = append(m.retained, list...)
}

// Close unloads the model.
func (m *model) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	for _, s := range m.sessions {
		s.close()
	}
	m.sessions = nil
	if m.retained = releaseReturned(m.retained); len(m.retained) > 0 {
		// The runtime may read them at any time, so their memory is never released.
		m.log.Warn("the runtime keeps inputs of a closed model", slog.String("model", m.how.files.path), slog.Int("inputs", len(m.retained)))
		m.retained = nil
	}
	return nil
}

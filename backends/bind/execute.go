package bind

import (
	"context"
	"sync"
	"time"
	"unsafe"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// MaxRank is the most dimensions of a tensor of a runtime.
const MaxRank = 16

// CheckHost refuses an instance at a device, for backends that run on the host only.
func CheckHost(backend, model string, at tensor.Place) error {
	if at.Kind == tensor.Device {
		return status.Errorf(status.Unsupported, "model '%s': %s on %s is not supported", model, backend, at)
	}
	return nil
}

// CheckExecute makes the checks with which every Instance.Execute begins: the instance is open, the batch is not cancelled,
// and it has as many inputs and outputs as the model.
func (b *Binding[R]) CheckExecute(ctx context.Context, open bool, batch *backends.Batch) error {
	switch {
	case !open:
		return status.Reasonf(status.ModelNotReady, "instance of model '%s' is closed", b.Sig.Model)
	case ctx.Err() != nil:
		return status.ErrCancelled
	case len(batch.In) != len(b.In) || len(batch.Out) != len(b.Out):
		return status.Errorf(status.Internal, "model '%s': expected a batch of %d inputs and %d outputs, got %d and %d",
			b.Sig.Model, len(b.In), len(b.Out), len(batch.In), len(batch.Out))
	}
	return nil
}

// Errorf returns an error about the model.
func (b *Binding[R]) Errorf(code status.Code, format string, args ...any) error {
	return status.Prefixf(status.Errorf(code, format, args...), "model '%s': ", b.Sig.Model)
}

// InputErrorf returns an error about input i.
func (b *Binding[R]) InputErrorf(i int, code status.Code, format string, args ...any) error {
	return status.Prefixf(status.Errorf(code, format, args...), "model '%s', input '%s': ", b.Sig.Model, b.In[i].Name)
}

// OutputErrorf returns an error about output i.
func (b *Binding[R]) OutputErrorf(i int, code status.Code, format string, args ...any) error {
	return b.OutputError(i, status.Errorf(code, format, args...))
}

// OutputError prefixes err with the model and the name of output i.
func (b *Binding[R]) OutputError(i int, err error) error {
	return status.Prefixf(err, "model '%s', output '%s': ", b.Sig.Model, b.Out[i].Name)
}

// UnexpectedInput returns the error for input i of a wrong type or shape.
func (b *Binding[R]) UnexpectedInput(i int, t *tensor.Tensor) error {
	p := &b.In[i]
	return b.InputErrorf(i, status.InvalidArg, "expected a %s tensor of shape %s, got a %s tensor of shape %s",
		p.DType, tensor.Of(p.Shape...), t.DType, t.Shape)
}

// CheckOutput refuses a result of a run with another element type, a number of types, or with too many dimensions.
func (b *Binding[R]) CheckOutput(i int, types Types, expected, number, rank int) error {
	if rank > MaxRank || number != expected {
		return b.OutputErrorf(i, status.Internal, "expected a %s tensor of at most %d dimensions, got %s of %d", b.Out[i].DType, MaxRank, types.Name(number), rank)
	}
	return nil
}

// ReshapeOutput gives output i, as the runtime returned it, the shape that the signature has for it. Without a reshape it does
// nothing.
func (b *Binding[R]) ReshapeOutput(i int, t *tensor.Tensor) error {
	p := &b.Out[i]
	if p.Reshape == nil {
		return nil
	}
	var dims [MaxRank]int64
	n, ok := p.Reshape.Apply(dims[:], t.Shape.Dims())
	to := tensor.Of(dims[:n]...)
	if !ok || t.Shape.Elements() != to.Elements() {
		return b.OutputErrorf(i, status.Internal, "shape %s cannot be reshaped to %s", t.Shape, to)
	}
	t.Shape = to
	return nil
}

// ShapeAt returns the shape of the given rank whose dimensions are at an address in C memory.
func ShapeAt(dims unsafe.Pointer, rank int) tensor.Shape {
	return tensor.Of(unsafe.Slice((*int64)(dims), rank)...)
}

// CopyOutput sets an output to a copy of n bytes at data.
func CopyOutput(b *backends.Batch, i int, d tensor.DType, s tensor.Shape, data unsafe.Pointer, n int) error {
	t, err := b.Alloc(i, d, s)
	if err == nil {
		copy(t.Bytes(), unsafe.Slice((*byte)(data), n))
	}
	return err
}

// Within reports whether p is in the n bytes at data.
func Within(p, data unsafe.Pointer, n int) bool {
	return uintptr(p) >= uintptr(data) && uintptr(p) < uintptr(data)+uintptr(n)
}

// Buffers wraps memory of a runtime as tensors, without a copy. The tensors may outlive the instance and the model. Buffers is
// safe for concurrent use.
type Buffers struct {
	// Behind orders the release of device memory behind the events of its last uses. It must be set, before the first Wrap, where
	// memory of a device is wrapped. It may be called by any goroutine.
	Behind func(uses []tensor.Event)

	release func(handle unsafe.Pointer)

	mu   sync.Mutex
	free *runtimeBuffer // guarded by mu
}

// runtimeBuffer is a tensor.Buffer over memory of the runtime.
type runtimeBuffer struct {
	buf    tensor.Buffer
	handle unsafe.Pointer
	of     *Buffers
	next   *runtimeBuffer
}

var _ tensor.Owner = (*runtimeBuffer)(nil)

// NewBuffers returns Buffers whose memory is freed by release, which receives the runtime's handle. release may be called by any
// goroutine, and after the model was closed.
func NewBuffers(release func(handle unsafe.Pointer)) *Buffers { return &Buffers{release: release} }

// Wrap returns a tensor over n bytes at data. The handle moves: it is released with the last reference to the tensor.
//
// hot: it reuses the buffers of released tensors, so it does not allocate in the steady state.
func (l *Buffers) Wrap(handle, data unsafe.Pointer, n int, at tensor.Place, d tensor.DType, s tensor.Shape) tensor.Tensor {
	l.mu.Lock()
	v := l.free
	if v != nil {
		l.free, v.next = v.next, nil
	}
	l.mu.Unlock()
	if v == nil {
		v = &runtimeBuffer{of: l}
	}
	v.handle = handle
	v.buf.Reset(v, at, data, n)
	return tensor.Tensor{DType: d, Shape: s, Buf: &v.buf, Len: n}
}

// Free implements tensor.Owner.
func (v *runtimeBuffer) Free(b *tensor.Buffer) {
	l := v.of
	if l.Behind != nil {
		l.Behind(b.TakeOrder())
	}
	l.release(v.handle)
	v.handle = nil
	l.mu.Lock()
	v.next, l.free = l.free, v
	l.mu.Unlock()
}

const (
	// checkEvery is the interval at which a Watch checks a run for cancellation. Most runs end earlier, and cost only a few locks.
	checkEvery = 10 * time.Millisecond
	// checkRarely bounds the interval of an instance whose runs are short. Each check wakes two or three threads of an idle process, which
	// costs as much as a small run.
	checkRarely = 250 * time.Millisecond
)

// Watch stops the runs of one instance when all requests of a batch are cancelled. Runs are made one at a time. The zero value is
// ready for use once Stop is set.
//
// A run is checked every checkEvery. While the checks find no run in progress, because all are short, their interval doubles up to
// checkRarely: the first long run after short ones may execute for so long before its cancellation is noticed.
type Watch struct {
	// Stop stops the current run. A Watch calls it again until the run has ended, and never outside of a run.
	Stop func()

	mu      sync.Mutex
	timer   *time.Timer
	every   time.Duration      // the interval until the next check, at least checkEvery; guarded by mu
	armed   bool               // the timer is set; guarded by mu
	ctx     context.Context    //nolint:containedctx // of the current run, nil between runs; guarded by mu
	reqs    []backends.Request // of the current run; guarded by mu
	stopped bool               // guarded by mu
}

// Begin starts watching a run.
//
// hot: no allocation after the first run.
func (w *Watch) Begin(ctx context.Context, b *backends.Batch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ctx, w.reqs = ctx, b.Requests
	if w.timer == nil {
		w.every = checkEvery
		w.timer = time.AfterFunc(w.every, w.check)
	} else if !w.armed {
		w.timer.Reset(w.every)
	}
	w.armed = true
}

// End ends watching, and reports whether the run was stopped.
func (w *Watch) End() (stopped bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	stopped = w.stopped
	w.ctx, w.reqs, w.stopped = nil, nil, false
	return stopped
}

// check is the function of the timer, which runs on while there are runs.
func (w *Watch) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.armed = w.ctx != nil; !w.armed {
		w.every = min(2*w.every, checkRarely)
		return
	}
	w.every = checkEvery
	done := func(ctx context.Context) bool { return ctx != nil && ctx.Err() != nil }
	gone := len(w.reqs) > 0
	for i := range w.reqs {
		gone = gone && done(w.reqs[i].Ctx)
	}
	if gone || done(w.ctx) {
		w.stopped = true
		w.Stop()
	}
	w.timer.Reset(w.every)
}

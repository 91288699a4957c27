package tritonlib

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// instance executes batches at one instance in the process of the model.
type instance struct {
	m      *model
	spec   command
	closed atomic.Bool
}

var _ backends.Recycler = (*instance)(nil)

// Alive implements backends.Recycler.
func (x *instance) Alive() bool { return x.m.Alive() }

// Recycle implements backends.Recycler. It ends the process of the model, which other instances use too.
func (x *instance) Recycle(why error) bool { return x.m.Recycle(why) }

// Resident implements backends.Recycler. Shared memory, which has the tensors of the server and the outputs, does not count. Each instance has
// the memory of the process.
func (x *instance) Resident() int64 { return x.m.Resident() }

// Close has the library finalize the instance.
func (x *instance) Close() error {
	if x.closed.Swap(true) {
		return nil
	}
	x.m.changes.Lock()
	defer x.m.changes.Unlock()
	x.m.remove(x)
	if p, alive := x.m.Now(); alive && !x.m.Closed() {
		ctx, stop := context.WithTimeout(context.Background(), exitTime)
		defer stop()
		_ = p.command(ctx, command{Op: opCloseInstance, Index: x.spec.Index}) // a process that does not close it in time is killed
	}
	return nil
}

// execution is the state of a batch in flight.
type execution struct {
	x        *instance
	b        *backends.Batch
	at       []*uint64 // the words by which requests are cancelled
	requests []progress
	open     int // requests that are not released, or have no final response
	executed bool
	detached bool
	err      error // of the whole batch
	staged   []tensor.Tensor
	outs     []tensor.Tensor // of a batch of several requests: those of each, one after another
	cursors  []cursor
	left     time.Time // all requests were cancelled since then; zero if not
}

// progress is the state of a request.
type progress struct {
	released, final bool
	responses       int
	cancelled       bool
}

// Execute has the library execute the batch. It returns when the library has released every request and sent its final responses.
//
// hot: no copy of tensors in shared memory.
func (x *instance) Execute(ctx context.Context, b *backends.Batch) error {
	if err := x.check(ctx, b); err != nil {
		return err
	}
	p, err := x.m.Current(ctx)
	if err != nil {
		return err
	}
	defer p.Release()
	s := p.acquire(ctx)
	if s == nil {
		return status.ErrCancelled
	}
	e := &s.run
	defer func() {
		tensor.ReleaseAll(e.staged)
		e.staged, e.b, e.x = e.staged[:0], nil, nil
		counter(s.mem, slotRound).Add(1) // what follows is not of this execution
		p.giveBack(s)
	}()
	e.begin(x, b)
	if err := e.describe(s); err != nil {
		return err
	}
	s.start(x.spec.Index)
	return x.finish(ctx, e.wait(ctx, s), p, b, e)
}

// check makes the checks with which an execution begins.
func (x *instance) check(ctx context.Context, b *backends.Batch) error {
	sig := x.m.sig
	switch {
	case x.closed.Load() || x.m.Closed():
		return status.Reasonf(status.ModelNotReady, "instance of model '%s' is closed", x.m.name)
	case ctx.Err() != nil:
		return status.ErrCancelled
	case len(b.In) != len(sig.Inputs) || len(b.Out) != len(sig.Outputs):
		return status.Errorf(status.Internal, "model '%s': expected a batch of %d inputs and %d outputs, got %d and %d", x.m.name, len(sig.Inputs), len(sig.Outputs), len(b.In), len(b.Out))
	}
	for i := range b.In {
		t, p := &b.In[i], &sig.Inputs[i]
		if !t.Present() {
			continue
		}
		if t.Buf.Place().Kind == tensor.Device {
			return status.Errorf(status.Internal, "model '%s': input '%s' is at %s, expected the host", x.m.name, p.Name, t.Buf.Place())
		}
		if t.DType != p.DType || !p.Unbatched && !p.Accepts(&t.Shape, sig.MaxBatch) {
			return status.Errorf(status.InvalidArg, "model '%s', input '%s': expected a %s tensor of shape %s, got a %s tensor of shape %s",
				x.m.name, p.Name, p.DType, p.FullDims(sig.MaxBatch), t.DType, t.Shape)
		}
	}
	return nil
}

func (e *execution) begin(x *instance, b *backends.Batch) {
	n := len(b.Requests)
	e.x, e.b, e.open, e.executed, e.detached, e.err, e.left = x, b, n, false, false, nil, time.Time{}
	e.requests = slices.Grow(e.requests[:0], n)[:n]
	clear(e.requests)
	e.at = e.at[:0]
	e.outs = nil // those of the last execution belong to its batch, which the server reads after Execute has returned
}

// describe writes the requests into the slot.
func (e *execution) describe(s *slot) error {
	w := s.request()
	w.put(uint64(len(e.b.Requests)))
	m := e.x.m
	e.cursors = slices.Grow(e.cursors[:0], len(e.b.In))[:len(e.b.In)]
	for i := range e.cursors {
		if e.b.In[i].Present() && !m.sig.Inputs[i].Unbatched {
			if err := e.place(i, &e.b.In[i]); err != nil {
				return err
			}
		}
	}
	for i := range e.b.Requests {
		if err := e.putRequest(&w, i); err != nil {
			return err
		}
	}
	if w.over {
		return status.Errorf(status.Unsupported, "model '%s': the requests of the batch need more than the %d bytes of their description that a backend library supports: send fewer parameters, or reduce max_batch_size", m.name, slotSize)
	}
	return nil
}

// cursor is the part of an input that the next request has.
type cursor struct {
	off  int    // in the shared memory
	rest []byte // of BYTES
}

// place sets the position of input i in the shared memory, to which it is copied if it is elsewhere.
func (e *execution) place(i int, t *tensor.Tensor) error {
	m := e.x.m
	off, ok := m.shared.Offset(t.Pointer())
	if !ok && t.Len > 0 {
		staged, err := tensor.NewBytes(m.staging, t.Shape, t.Len)
		if err != nil {
			return err
		}
		copy(staged.Bytes(), t.Bytes())
		e.staged = append(e.staged, staged)
		off, _ = m.shared.Offset(staged.Pointer())
	}
	if t.Len == 0 {
		off = 0
	}
	e.cursors[i] = cursor{off: off}
	if t.DType == tensor.Bytes && t.Len > 0 {
		e.cursors[i].rest = t.Bytes()
	}
	return nil
}

var noMeta infer.Meta

func (e *execution) putRequest(w *words, i int) error {
	q, m := &e.b.Requests[i], e.x.m
	meta := cmp.Or(q.Meta, &noMeta)
	if w.put(0); !w.over {
		e.at = append(e.at, &w.list[w.at-1])
	}
	flags := uint64(0)
	for _, f := range []struct {
		on   bool
		flag uint64
	}{{meta.Sequence.Start, flagStart}, {meta.Sequence.End, flagEnd}, {q.Trace.Sampled(), flagTraced}} {
		if f.on {
			flags |= f.flag
		}
	}
	w.put(flags)
	w.put(meta.Sequence.ID)
	w.put(meta.Timeout)
	w.putText(meta.ID)
	w.putText(meta.Sequence.Name)
	e.putOutputs(w, q)
	present := 0
	for k := range e.b.In {
		if e.b.In[k].Present() {
			present++
		}
	}
	w.put(uint64(present)) //nolint:gosec // not negative
	for k := range e.b.In {
		t := &e.b.In[k]
		if !t.Present() {
			continue
		}
		rows := e.b.Rows
		if m.sig.Inputs[k].Unbatched { // the tensor of the request
			if len(q.In) <= k || !q.In[k].Present() {
				return status.Errorf(status.Internal, "model '%s': ragged input '%s' lacks the tensors of its requests", m.name, m.sig.Inputs[k].Name)
			}
			t = &q.In[k]
			if err := e.place(k, t); err != nil {
				return err
			}
		} else if m.sig.MaxBatch > 0 {
			rows = q.Rows
		}
		e.putInput(w, k, t, rows)
	}
	w.putParams(meta.Params)
	return nil
}

// putOutputs writes the requested outputs: without any, all but states.
func (e *execution) putOutputs(w *words, q *backends.Request) {
	m := e.x.m
	at, n := w.at, 0
	w.put(0)
	for k := range m.sig.Outputs {
		if !m.states[k] && (len(q.RequestedOutputs) == 0 || slices.Contains(q.RequestedOutputs, m.sig.Outputs[k].Name)) {
			w.put(uint64(k)) //nolint:gosec // an index
			n++
		}
	}
	if !w.over {
		w.list[at] = uint64(n)
	}
}

// putInput writes the next rows of input k, which are all that t has if it is of the request alone.
func (e *execution) putInput(w *words, k int, t *tensor.Tensor, rows int) {
	c, size, shape := &e.cursors[k], t.Len, t.Shape
	if rows != e.b.Rows && !e.x.m.sig.Inputs[k].Unbatched {
		shape.SetDim(0, int64(rows))
		if t.DType == tensor.Bytes {
			size = c.elements(shape.Elements())
		} else {
			size = t.Len / e.b.Rows * rows
		}
	}
	w.put(uint64(k)) //nolint:gosec // an index
	w.put(uint64(t.DType))
	w.put(uint64(c.off)) //nolint:gosec // not negative
	w.put(uint64(size))  //nolint:gosec // not negative
	w.put(uint64(shape.Rank()))
	for _, dim := range shape.Dims() {
		w.put(uint64(dim)) //nolint:gosec // the same bits
	}
	c.off += size
}

// elements skips n elements of BYTES and returns their size.
func (c *cursor) elements(n int64) int {
	before := len(c.rest)
	for ; n > 0; n-- {
		_, rest, ok := tensor.NextBytes(c.rest)
		if !ok {
			break
		}
		c.rest = rest
	}
	return before - len(c.rest)
}

// wait handles events until the execution has ended. It returns false when the process has ended before.
func (e *execution) wait(ctx context.Context, s *slot) bool {
	for patient := false; ; {
		for _, at := range s.take() {
			e.handle(s, at)
			s.of.free(at)
		}
		switch {
		case e.executed && e.open == 0:
			return true
		case !s.of.Alive():
			<-s.of.Ended
			return false
		case e.executed && !e.detached:
			e.detached = true
			e.b.Detach()
		}
		if patient = s.await(patient); patient { // one that has slept expects to sleep again
			e.watch(ctx, s)
		}
	}
}

// watch tells the process which requests are cancelled. One that keeps requests that are all cancelled is killed.
func (e *execution) watch(ctx context.Context, s *slot) {
	all := ctx.Err() != nil
	gone := true
	for i := range e.b.Requests {
		c := e.b.Requests[i].Ctx
		if all || c != nil && c.Err() != nil {
			if !e.requests[i].cancelled && i < len(e.at) {
				e.requests[i].cancelled = true
				storeWord(e.at[i], 1)
			}
			continue
		}
		gone = false
	}
	switch {
	case !gone:
		e.left = time.Time{}
	case e.left.IsZero():
		e.left = time.Now()
	case time.Since(e.left) > giveUpAfter:
		s.of.Kill("it kept requests for " + giveUpAfter.String() + " after they were cancelled")
	}
}

// finish returns the error of an execution that has ended, or whose process has.
func (x *instance) finish(ctx context.Context, ended bool, p *process, b *backends.Batch, e *execution) error {
	err := e.err
	switch {
	case !ended:
		err = x.lost(ctx, p, b, e)
	default:
		x.m.Succeeded()
	}
	if err == nil {
		return nil
	}
	tensor.ReleaseAll(b.Out)
	for i := range b.Requests {
		tensor.ReleaseAll(b.Requests[i].Out)
		b.Requests[i].Out = nil
	}
	if ctx.Err() != nil && status.CodeOf(err) == status.Cancelled {
		return status.ErrCancelled
	}
	return err
}

// lost returns the error of a batch whose process has ended.
func (x *instance) lost(ctx context.Context, p *process, b *backends.Batch, e *execution) error {
	times := x.m.crashes.Ended(ctx, b, p.Why)
	text := "model '" + x.m.name + "': the process of backend library '" + x.m.about.Backend + "' ended while it executed the request, and is started again: " + p.Why
	for i := range e.requests {
		if x.m.sig.Decoupled && e.requests[i].responses > 0 && !e.requests[i].final && b.Requests[i].Err == nil {
			b.Requests[i].Err = status.Errorf(status.Internal, "%s; it had sent %d responses, which come again if the request is sent again", text, e.requests[i].responses)
		}
	}
	return x.m.Lost(p, times, text)
}

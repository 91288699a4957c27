package python

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// instance executes in a worker of its own. One whose worker has gone starts another for the next batch.
type instance struct {
	m    *model
	name string
	only execution // the one at a time, unless the model is decoupled

	alive   atomic.Pointer[worker] // w, for who does not hold mu
	revival revival
	life    context.Context //nolint:containedctx // what starts a worker while nobody asks ends with the instance
	end     context.CancelFunc

	mu      sync.Mutex
	w       *worker // guarded by mu, as all that follows
	closed  bool
	cursors []cursor
	answer  answer
	outs    []tensor.Tensor
	out     *region
	buf     *tensor.Buffer // of out, once a tensor stays there
	mem     memory
}

var _ backends.Instance = (*instance)(nil)

// start gives the instance a worker whose model is initialised.
func (x *instance) start(ctx context.Context) error {
	w := x.m.takeSpare()
	if w == nil {
		var err error
		if w, err = startWorker(ctx, x.m); err != nil {
			return err
		}
	}
	w.serves(x.name, x.died)
	if err := w.run(ctx, kindInit, x.m.initialise(x.name), nil); err != nil {
		w.close()
		return err
	}
	x.w = w
	x.alive.Store(w)
	return nil
}

// Close has the model finalised and ends the worker.
func (x *instance) Close() error {
	x.revival.stop()
	x.end() // whoever starts a worker gives up
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return nil
	}
	x.closed = true
	x.m.forget(x)
	w := x.w
	x.w = nil
	x.alive.Store(nil)
	if w == nil {
		return nil
	}
	if w.ctx.Err() != nil {
		w.close()
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), x.m.b.set.timeout)
	defer cancel()
	w.leaving.Store(true)
	if err := w.run(ctx, kindFinalize, struct{}{}, nil); err != nil {
		x.m.log.WarnContext(ctx, "finalizing a python model failed", slog.String("error", err.Error()))
	}
	w.close()
	return nil
}

// ready returns nil when the worker lives and its model is ready.
func (x *instance) ready() error {
	w := x.alive.Load()
	if w == nil || w.ctx.Err() != nil {
		return status.Errorf(status.Unavailable, "%s", unhealthy(x.name))
	}
	return w.isReady()
}

// Execute has the worker execute the batch's requests.
//
// hot: no allocation in the steady state, unless the model is decoupled.
func (x *instance) Execute(ctx context.Context, b *backends.Batch) error {
	if ctx.Err() != nil {
		return status.ErrCancelled
	}
	e := &x.only
	if x.m.sig.Decoupled {
		e = newExecution()
	}
	w, err := x.hand(ctx, b, e)
	if err == nil && e.open() {
		b.Detach()
		err = e.wait(w, b)
	}
	if w == nil {
		failAll(b, nil, err) // e is still the last batch's
		return nil
	}
	w.running.remove(e)
	e.end()
	if w.ctx.Err() != nil {
		x.leave(w)
	}
	if err != nil {
		failAll(b, e, err)
	}
	return nil
}

// hand has the worker execute the batch, of which responses may still be to come. The worker is nil when it was not sent.
func (x *instance) hand(ctx context.Context, b *backends.Batch, e *execution) (w *worker, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return nil, status.Errorf(status.Unavailable, "instance of model '%s' is closed", x.m.sig.Model)
	}
	if x.w != nil && x.w.ctx.Err() != nil {
		x.lost() // it has gone since, and no request with it
	}
	if x.w == nil {
		if err := x.start(ctx); err != nil {
			err = status.Prefixf(err, "cannot start the python worker of model '%s' again: ", x.m.sig.Model)
			x.m.failed(x.name, status.Text(err))
			return nil, err
		}
	}
	defer x.giveBack()
	if err := x.begin(b); err != nil {
		return nil, err
	}
	w = x.w
	e.begin(w.seq+1, b, x.m.sig.Decoupled)
	w.running.add(e)
	return w, x.run(b, e)
}

// leave ends a worker that is gone.
func (x *instance) leave(w *worker) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.w == w {
		x.lost()
	}
}

// failAll fails the requests of a batch that have not failed yet. They are not tried again one by one: the model has
// seen them. One whose last response was sent keeps it, as in Triton. e is nil when the model has not.
func failAll(b *backends.Batch, e *execution, err error) {
	for i := range b.Requests {
		if e != nil && e.ended(i) {
			continue
		}
		if b.Requests[i].Err == nil {
			b.Requests[i].Err = err
		}
		tensor.ReleaseAll(b.Requests[i].Out)
		b.Requests[i].Out = nil
	}
	tensor.ReleaseAll(b.Out)
}

// lost ends a worker that is of no more use. It is called with mu held.
func (x *instance) lost() {
	x.w.close()
	x.w = nil
	x.alive.Store(nil)
}

// begin writes the batch's inputs to shared memory and describes its requests.
func (x *instance) begin(b *backends.Batch) error {
	if len(b.In) != len(x.m.sig.Inputs) || len(b.Out) != len(x.m.sig.Outputs) {
		return status.Errorf(status.Internal, "model '%s': expected a batch of %d inputs and %d outputs, got %d and %d",
			x.m.sig.Model, len(x.m.sig.Inputs), len(x.m.sig.Outputs), len(b.In), len(b.Out))
	}
	for i := range b.In {
		if t := &b.In[i]; t.Present() && !x.takes(i, t) {
			return x.m.unexpectedInput(i, t)
		}
	}
	if !x.ragged(b) {
		return status.Errorf(status.Internal, "model '%s': a ragged input is not what its requests hold", x.m.sig.Model)
	}
	w := x.w
	n := inputBytes(b)
	in, err := w.regions.inputs(n)
	if err == nil {
		x.out, err = w.regions.outputs()
	}
	if err == nil {
		err = w.regions.settle()
	}
	if err != nil {
		return x.broken(err)
	}
	w.body = binary.LittleEndian.AppendUint32(newBody(w.body), uint32(len(b.Requests)))
	w.body = binary.LittleEndian.AppendUint32(w.body, in.id)
	w.body = binary.LittleEndian.AppendUint32(w.body, x.out.id)
	w.body = binary.LittleEndian.AppendUint32(w.body, 0)
	w.body = binary.LittleEndian.AppendUint64(w.body, uint64(n))
	w.body = binary.LittleEndian.AppendUint64(w.body, uint64(len(x.out.mem)))
	present := x.copyInputs(b, in)
	for i := range b.Requests {
		x.appendRequest(b, i, present)
	}
	return nil
}

// takes reports whether an input is what the model declares. The shapes of ragged ones are their requests'.
func (x *instance) takes(i int, t *tensor.Tensor) bool {
	p := &x.m.sig.Inputs[i]
	return t.DType == p.DType && (p.Whole || p.Accepts(&t.Shape, x.m.sig.MaxBatch))
}

// ragged reports whether the requests' shares of ragged inputs are known and make up the batch's.
func (x *instance) ragged(b *backends.Batch) bool {
	for k := range b.In {
		if !x.m.sig.Inputs[k].Whole || !b.In[k].Present() {
			continue
		}
		n := 0
		for i := range b.Requests {
			if len(b.Requests[i].In) <= k {
				return false
			}
			n += b.Requests[i].In[k].Len
		}
		if n != b.In[k].Len {
			return false
		}
	}
	return true
}

// broken ends the worker, with mu held, when an error is of its socket.
func (x *instance) broken(err error) error {
	if e, ok := errors.AsType[*status.Error](err); ok {
		return e
	}
	err = x.w.gone(err)
	x.lost()
	return err
}

// copyInputs copies whole inputs and remembers where they begin.
func (x *instance) copyInputs(b *backends.Batch, in *region) (present int) {
	off := 0
	for i := range b.In {
		t, c := &b.In[i], &x.cursors[i]
		if !t.Present() {
			continue
		}
		present++
		copy(in.mem[off:], t.Bytes())
		*c = cursor{off: off, rest: t.Bytes()}
		off = aligned(off + t.Len)
	}
	return present
}

func (x *instance) appendRequest(b *backends.Batch, i, present int) {
	q, w := &b.Requests[i], x.w
	at := len(w.body)
	w.body = appendRequest(w.body, q.Meta, present)
	for k := range b.In {
		t := &b.In[k]
		if !t.Present() {
			continue
		}
		if x.m.sig.Inputs[k].Whole {
			w.body = appendPart(w.body, k, &q.In[k], -1, x.cursors[k].off, q.In[k].Len)
			x.cursors[k].off += q.In[k].Len
			continue
		}
		first, rows := int64(-1), b.Rows
		if x.m.sig.MaxBatch > 0 && !x.m.sig.Inputs[k].ShapeTensor {
			first, rows = int64(q.Rows), q.Rows
		}
		off, size := x.cursors[k].rows(t, b.Rows, rows)
		w.body = appendPart(w.body, k, t, first, off, size)
		if x.m.sig.Inputs[k].ShapeTensor {
			x.cursors[k].off = off // every request has all of it
		}
	}
	w.body = appendExtra(w.body, at, q)
}

// run sends the execution and takes its answers.
func (x *instance) run(b *backends.Batch, e *execution) error {
	w := x.w
	w.seq++
	err := w.calls.send(kindExecute, 0, w.seq, w.body)
	if err == nil {
		err = x.await(b)
	}
	if err != nil {
		err = w.gone(err)
	}
	var p *packet
	if err == nil {
		p, err = w.answered()
	}
	if err != nil {
		w.cancel()
		return err
	}
	if p.kind == kindFailed {
		w.regions.leaveInputs() // the traceback may hold on to them
		err := failure(p)
		x.m.failed(x.name, status.Text(err))
		return raised(x.name, err)
	}
	if p.flags&flagKept != 0 {
		w.regions.leaveInputs()
	}
	x.revival.served()
	return x.take(b, e, p)
}

// await waits for the answer. A worker that does not answer though all clients have gone is killed.
func (x *instance) await(b *backends.Batch) error {
	w := x.w
	over := time.Duration(0)
	tick := min(time.Second, x.m.b.set.timeout/2)
	for at := time.Now(); ; {
		w.calls.limit(at, tick)
		err := w.calls.receive(&w.pkt)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		now := time.Now()
		over = patience(b, over, now.Sub(at))
		if at = now; over > x.m.b.set.timeout {
			w.kill("it did not answer within " + x.m.b.set.timeout.String() + " after its requests were cancelled")
		}
	}
}

// patience adds a tick to how long nobody has been waiting for a batch.
func patience(b *backends.Batch, over, tick time.Duration) time.Duration {
	for i := range b.Requests {
		if ctx := b.Requests[i].Ctx; ctx == nil || ctx.Err() == nil {
			return 0
		}
	}
	return over + tick
}

// take hands the answers to the requests.
func (x *instance) take(b *backends.Batch, e *execution, p *packet) error {
	r := reader{b: p.body}
	n := int(r.u32())
	r.u32()
	if p.flags&flagSame != 0 {
		x.out = x.w.regions.swap(x.out)
	}
	err := x.out.grown(r.u64())
	switch {
	case err != nil:
		return err
	case n != len(b.Requests):
		return status.Errorf(status.Internal, "model '%s' ('%s'): expected %d responses of execute, found %d", x.m.sig.Model, x.m.file, len(b.Requests), n)
	}
	x.mem = memory{mem: x.out.mem, alloc: b.Allocator, keep: x.mem.keep}
	if b.HostAllocator != nil {
		x.mem.alloc = b.HostAllocator
	}
	if x.w.regions.crowded() {
		x.mem.keep = nil
	} else if x.mem.keep == nil {
		x.mem.keep = x.keep
	}
	need := len(b.Requests) * len(b.Out)
	for len(x.outs) < need {
		x.outs = append(x.outs, tensor.Tensor{})
	}
	for i := range b.Requests {
		x.answer.read(&r)
		if r.bad {
			return status.Errorf(status.Internal, "model '%s': unexpected answer of %d bytes of its python worker", x.m.sig.Model, len(p.body))
		}
		x.settle(b, e, i)
	}
	return nil
}

// keep returns the buffer of the region for outputs.
func (x *instance) keep() *tensor.Buffer {
	if x.buf == nil {
		x.buf = x.out.buffer()
	}
	return x.buf
}

// giveBack gives up the region for outputs, which goes back when no tensor lies there.
func (x *instance) giveBack() {
	switch {
	case x.buf != nil:
		x.buf.Release()
	case x.out != nil:
		x.out.of.put(x.out)
	}
	x.buf, x.out = nil, nil
}

// settle gives one request its answer.
func (x *instance) settle(b *backends.Batch, e *execution, i int) {
	a, q := &x.answer, &b.Requests[i]
	if a.state == stateNone {
		return
	}
	e.settled(i)
	switch a.state {
	case stateError:
		q.Err = a.err()
		return
	case stateAgain:
		b.Reschedule(i)
		return
	}
	q.ResponseParams = append(q.ResponseParams, a.params...)
	outs := b.Out
	if len(b.Requests) > 1 {
		outs = x.outs[i*len(b.Out) : (i+1)*len(b.Out)]
		q.Out = outs
	}
	if err := x.m.outputs(a, &x.mem, q.Rows, outs); err != nil {
		tensor.ReleaseAll(outs)
		q.Err = err
	}
}

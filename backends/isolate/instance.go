package isolate

import (
	"context"
	"slices"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/backends/crash"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// instance executes batches in a process, which is replaced when it ends.
type instance struct {
	*crash.Keeper[*process]

	m     *model
	watch bind.Watch
	seq   uint32

	staged []tensor.Tensor // copies of inputs that are in no shared memory
}

var _ backends.Recycler = (*instance)(nil)

func newInstance(m *model, p *process) *instance {
	x := &instance{m: m}
	x.watch.Stop = func() {
		if p, alive := x.Now(); alive {
			c := p.control.counter(atCancel)
			c.Store(x.seq)
			wake(c)
		}
	}
	x.Keeper = crash.Keep(crash.KeeperSettings[*process]{
		Model: m.name, What: "the process of an isolated instance", Log: m.log, Restarting: func() { m.counters.Add(countRestarts) },
		Start: func(ctx context.Context, publish func(*process)) error {
			p, _, err := m.start(ctx)
			if err == nil {
				publish(p)
			}
			return err
		},
	}, p)
	return x
}

// Close ends the process.
func (x *instance) Close() error {
	x.Keeper.Close()
	x.m.mu.Lock()
	defer x.m.mu.Unlock()
	x.m.live = slices.DeleteFunc(x.m.live, func(y *instance) bool { return x == y })
	return nil
}

// Execute has the process execute the batch.
//
// hot: no allocation, and no copy of tensors in shared memory.
func (x *instance) Execute(ctx context.Context, b *backends.Batch) error {
	switch {
	case x.Closed():
		return status.Reasonf(status.ModelNotReady, "instance of model '%s' is closed", x.m.name)
	case ctx.Err() != nil:
		return status.ErrCancelled
	case len(b.In) != len(x.m.sig.Inputs) || len(b.Out) != len(x.m.sig.Outputs):
		return status.Errorf(status.Internal, "model '%s': expected a batch of %d inputs and %d outputs, got %d and %d",
			x.m.name, len(x.m.sig.Inputs), len(x.m.sig.Outputs), len(b.In), len(b.Out))
	}
	p, err := x.Current(ctx)
	if err != nil {
		return err
	}
	defer p.Release()
	defer func() { tensor.ReleaseAll(x.staged) }()
	x.staged = x.staged[:0]
	if err := x.send(p, b); err != nil {
		return err
	}
	if x.seq++; x.seq == gone || x.seq == 0 {
		x.seq = 1
	}
	ended, waiting := p.control.counter(atEnded), p.control.counter(atWaiting)
	before := ended.Load()
	if before == gone {
		return x.lose(ctx, p, b)
	}
	x.watch.Begin(ctx, b)
	announce(p.control.counter(atStarted), p.control.counter(atAsleep), x.seq)
	got := await(ended, waiting, before)
	stopped := x.watch.End()
	switch {
	case got == gone:
		return x.lose(ctx, p, b)
	case got != x.seq:
		p.Kill("it sent something else than a response")
		return x.lose(ctx, p, b)
	}
	x.Succeeded()
	if err := x.receive(p, b); err != nil {
		tensor.ReleaseAll(b.Out)
		if stopped && status.CodeOf(err) == status.Cancelled {
			return status.ErrCancelled
		}
		return err
	}
	return nil
}

// send describes the batch.
func (x *instance) send(p *process, b *backends.Batch) error {
	w := p.control.request()
	w.put(uint64(b.Rows)) //nolint:gosec // not negative
	p.mu.Lock()
	n := min(len(p.freed), mostFreed)
	w.put(uint64(n)) //nolint:gosec // a length
	for _, slot := range p.freed[:n] {
		w.put(slot)
	}
	p.freed = append(p.freed[:0], p.freed[n:]...)
	p.mu.Unlock()
	for i := range b.In {
		t := &b.In[i]
		if !t.Present() {
			w.put(0)
			continue
		}
		if t.Buf.Place().Kind == tensor.Device {
			return status.Errorf(status.Internal, "model '%s': input '%s' is at %s, expected the host", x.m.name, x.m.sig.Inputs[i].Name, t.Buf.Place())
		}
		w.put(1)
		off, ok := x.m.shared.Offset(t.Pointer())
		if !ok {
			staged, err := tensor.NewBytes(x.m.staging, t.Shape, t.Len)
			if err != nil {
				return err
			}
			copy(staged.Bytes(), t.Bytes())
			x.staged = append(x.staged, staged)
			off, _ = x.m.shared.Offset(staged.Pointer())
		}
		w.putTensor(t.DType, off, t.Len, &t.Shape)
	}
	if w.over {
		return errTooLarge(x.m.name)
	}
	return nil
}

// receive takes the outputs. What the child has written is not trusted.
func (x *instance) receive(p *process, b *backends.Batch) error {
	w := p.control.response()
	if w.next() != 0 {
		return w.error()
	}
	for i := range b.Out {
		var err error
		switch w.next() {
		case outAbsent:
		case outInRange:
			err = x.take(p, b, i, &w)
		case outOfInput:
			err = x.passThrough(b, i, &w)
		default:
			w.over = true
		}
		if err == nil && w.over {
			err = status.Errorf(status.Internal, "model '%s': its process sent an unreadable response", x.m.name)
		}
		if err != nil {
			p.Kill(err.Error()) // what it holds is unknown
			return err
		}
	}
	return nil
}

// take sets an output to a tensor in the range of the process.
func (x *instance) take(p *process, b *backends.Batch, i int, w *words) error {
	slot := w.next()
	d, off, n, shape := w.tensor()
	size := uint64(len(p.Mem))
	if w.over || off < controlSize || off > size || n > size-off {
		return x.unusable(i)
	}
	mem := p.Mem[off : off+n : off+n]
	b.SetOutput(i, tensor.Tensor{DType: d, Shape: shape, Buf: p.Wrap(slot, mem), Len: len(mem)})
	if d == tensor.Bytes {
		if err := tensor.CheckBytes(mem, shape.Elements()); err != nil {
			return status.Errorf(status.Internal, "model '%s', output '%s': %w", x.m.name, x.m.sig.Outputs[i].Name, err)
		}
	}
	return nil
}

// passThrough sets an output to a part of an input.
func (x *instance) passThrough(b *backends.Batch, i int, w *words) error {
	k := w.next()
	d, off, n, shape := w.tensor()
	if w.over || k >= uint64(len(b.In)) || !b.In[k].Present() || off > uint64(b.In[k].Len) || n > uint64(b.In[k].Len)-off { //nolint:gosec // a length
		return x.unusable(i)
	}
	t := b.In[k].Retain()
	t.DType, t.Shape, t.Off, t.Len = d, shape, t.Off+int(off), int(n) //nolint:gosec // within the input
	b.SetOutput(i, t)
	return nil
}

func (x *instance) unusable(i int) error {
	return status.Errorf(status.Internal, "model '%s', output '%s': its process sent an unusable tensor", x.m.name, x.m.sig.Outputs[i].Name)
}

// lose returns the error of a batch whose process has ended.
func (x *instance) lose(ctx context.Context, p *process, b *backends.Batch) error {
	<-p.Ended
	times := x.m.crashes.Ended(ctx, b, p.Why)
	return x.Lost(p, times, "model '"+x.m.name+"': the process of the instance ended while it executed the request, and is started again: "+p.Why)
}

package batch

import (
	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler"
)

// The times of a batch at a device are measured by a span with marks at: inputs that are at the device are ready, the other inputs are
// there and joined, the model has ended, the outputs are cut. The first wait for other streams is before the first mark, so that a step
// has no time of the step before it.

// span starts to measure a batch; nil on the host, and where nothing is measured. It also counts batches before it.
//
// hot: a failed type assertion on the host.
func (r *Runner) span(b *backends.Batch) tensor.Span {
	t, ok := b.Stream.(tensor.Timer)
	if !ok {
		return nil
	}
	r.s.Stats.SettleOldest()
	p, err := t.Span()
	if err != nil {
		return nil // the host's times count
	}
	return p
}

// mark sets the next mark of a span, which may be nil. Laps returns what fails.
func mark(p tensor.Span, own bool) {
	if p != nil {
		_ = p.Mark(own)
	}
}

// awaitThere makes the stream of the batch wait for the inputs of a task that are at its device.
func awaitThere(b *backends.Batch, in []tensor.Tensor) error {
	for i := range in {
		if t := &in[i]; t.Present() && t.Buf.Place() == b.Stream.Place() {
			if err := await(t.Buf, b.Stream); err != nil {
				return err
			}
		}
	}
	return nil
}

// begin is span with the first mark, behind the inputs of the tasks that are at the device.
func (r *Runner) begin(b *backends.Batch, list *scheduler.Task) (p tensor.Span, err error) {
	if p = r.span(b); p == nil {
		return nil, nil
	}
	for w := list; w != nil && err == nil; w = w.Next() {
		err = awaitThere(b, w.In)
	}
	mark(p, false)
	return p, err
}

// countOne counts a batch of one task: now, or when its device has executed it. err is the batch's.
func (r *Runner) countOne(p tensor.Span, inst backends.Instance, w *scheduler.Task, rows int, succeeded bool, err error) {
	if p != nil && err == nil {
		x := r.measured(p, inst, rows, &w.Times, true, w.Traced != nil)
		if succeeded {
			r.member(x, w)
			r.teach(x, w)
		}
		w.Measured = x.Publish()
		return
	}
	release(p)
	w.Measured = telemetry.Pending{}
	if succeeded {
		r.s.Stats.Alone(rows, w.Enqueued, &w.Times)
	} else {
		r.s.Stats.Executed(rows, &w.Times)
	}
}

// measured returns a batch that is counted later.
func (r *Runner) measured(p tensor.Span, inst backends.Instance, rows int, t *telemetry.Times, alone, traced bool) *telemetry.Measured {
	told, _ := inst.(telemetry.Told)
	return r.s.Stats.Measure(p, rows, t, alone, traced, told)
}

// member adds a task that succeeded to a batch that is counted later.
func (*Runner) member(x *telemetry.Measured, w *scheduler.Task) {
	x.Member(int(w.Rows), w.Enqueued)
	if a, ok := w.To.(scheduler.Accounts); ok {
		if step, sums := a.Account(w.Run, w.Node); step != nil || sums != nil {
			x.Share(step, w.Enqueued, sums)
		}
	}
}

// countAll finishes the tasks of a gathered batch, and counts them: now, or when their device has executed it.
func (r *Runner) countAll(p tensor.Span, inst backends.Instance, b *backends.Batch, list *scheduler.TaskList, times *telemetry.Times, err error) {
	var x *telemetry.Measured
	if p != nil && err == nil {
		mark(p, false)
		x = r.measured(p, inst, b.Rows, times, false, traced(list) != nil)
	} else {
		release(p)
		r.s.Stats.Executed(b.Rows, times)
	}
	i := 0
	for w := list.Head; w != nil; w = w.Next() {
		w.Times = *times
		switch {
		case !r.finish(w, &b.Requests[i], err):
		case x != nil:
			r.member(x, w)
		default:
			r.s.Stats.Succeeded(int(w.Rows), w.Enqueued, times)
		}
		i++
	}
	var pending telemetry.Pending
	if x != nil {
		r.teach(x, list.Head)
		pending = x.Publish()
	}
	for w := list.Head; w != nil; w = w.Next() {
		w.Measured = pending
	}
}

// teach has the learner learn from a batch, which begins with the task first, unless a task has failed.
func (r *Runner) teach(x *telemetry.Measured, first *scheduler.Task) {
	l := r.learner.Load()
	if l == nil {
		return
	}
	var c scheduler.Executed
	if Cost(&c, first) {
		x.Teach(*l, telemetry.Cost{Rows: c.Rows, Elements: c.Elements, Unpadded: c.Unpadded, Padding: c.Padding})
	}
}

// Cost sets c, but for the duration, to what a batch had to compute that begins with the task first. It returns false if a task failed, because the batch may
// have ended early.
func Cost(c *scheduler.Executed, first *scheduler.Task) bool {
	extent := int64(0)
	for w := first; w != nil; w = w.Next() {
		if w.Err != nil {
			return false
		}
		c.Rows += int64(w.Rows)
		c.Elements += w.Elements
		extent = max(extent, int64(w.Length))
		c.Unpadded += int64(w.Rows) * int64(w.Length)
	}
	c.Padding = c.Rows*extent - c.Unpadded
	return true
}

// release ends a measurement that is not needed, which may be nil.
func release(p tensor.Span) {
	if p != nil {
		p.Release()
	}
}

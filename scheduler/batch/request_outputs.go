package batch

import (
	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/scheduler"
)

// takeRequestOutputs moves per-request outputs to their tasks. err is the batch's.
func (r *Runner) takeRequestOutputs(b *backends.Batch, list *scheduler.TaskList, err error) {
	i := 0
	for w := list.Head; w != nil; w = w.Next() {
		q := &b.Requests[i]
		i++
		if q.Out == nil {
			continue
		}
		if err == nil && q.Err == nil {
			q.Err = r.checkRequestOutputs(b, w, q)
		}
		if err == nil && q.Err == nil {
			moveOutputs(w.Out, q.Out)
		} else {
			tensor.ReleaseAll(q.Out)
		}
		q.Out = nil
	}
}

// checkRequestOutputs checks the per-request outputs of one task, and cuts padding out of them.
func (r *Runner) checkRequestOutputs(b *backends.Batch, w *scheduler.Task, q *backends.Request) error {
	if len(q.Out) != len(w.Out) {
		return status.Errorf(status.Internal, "model '%s' gives a request %d outputs, expected %d", r.sig.Model, len(q.Out), len(w.Out))
	}
	if err := r.checkOutputs(q.Out, q.Rows, true); err != nil {
		return err
	}
	for port := range q.Out {
		unpad, t := r.s.Padding.output(port), &q.Out[port]
		if unpad == nil || !t.Present() || t.DType == tensor.Bytes || !w.In[unpad.like].Present() || !r.sig.Outputs[port].Accepts(&t.Shape, r.sig.MaxBatch) {
			continue
		}
		if err := r.cut(b.Stream, t, unpad.dim, w.In[unpad.like].Shape.Dim(unpad.likeDim)); err != nil {
			return err
		}
	}
	return nil
}

// moveOutputs moves per-request outputs to out.
func moveOutputs(out, own []tensor.Tensor) {
	for i := range min(len(out), len(own)) {
		out[i].Release()
		out[i] = own[i].Move()
	}
}

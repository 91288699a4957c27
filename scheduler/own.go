package scheduler

import (
	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// takeOwn gives works the outputs that the model made for them alone. err is the
// batch's.
func (r *Runner) takeOwn(b *backends.Batch, list *TaskList, err error) {
	i := 0
	for w := list.Head; w != nil; w = w.next {
		q := &b.Requests[i]
		i++
		if q.Out == nil {
			continue
		}
		if err == nil && q.Err == nil {
			q.Err = r.checkOwn(b, w, q)
		}
		if err == nil && q.Err == nil {
			copyOwn(w.Out, q.Out)
		} else {
			tensor.ReleaseAll(q.Out)
		}
		q.Out = nil
	}
}

// checkOwn checks one work's own outputs, and cuts padding out of them.
func (r *Runner) checkOwn(b *backends.Batch, w *Task, q *backends.Request) error {
	if len(q.Out) != len(w.Out) {
		return status.Errorf(status.Internal, "model '%s' gives a request %d outputs, expected %d", r.sig.Model, len(q.Out), len(w.Out))
	}
	if err := r.checkOutputs(q.Out, q.Rows, true); err != nil {
		return err
	}
	for port := range q.Out {
		unpad, t := r.pad.output(port), &q.Out[port]
		if unpad == nil || !t.Present() || t.DType == tensor.Bytes || !w.In[unpad.like].Present() || !r.sig.Outputs[port].Accepts(&t.Shape, r.sig.MaxBatch) {
			continue
		}
		if err := r.cut(b.Stream, t, unpad.dim, w.In[unpad.like].Shape.Dim(unpad.likeDim)); err != nil {
			return err
		}
	}
	return nil
}

// copyOwn moves own outputs to where a work has its.
func copyOwn(out, own []tensor.Tensor) {
	for i := range min(len(out), len(own)) {
		out[i].Release()
		out[i] = own[i].Move()
	}
}

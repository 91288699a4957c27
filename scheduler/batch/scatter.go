package batch

import (
	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/scheduler"
)

// scatter sets the outputs of every task that did not fail to its rows: views of the batch's buffers,
// copied only where padding must be cut out of several rows.
func (r *Runner) scatter(b *backends.Batch, list *scheduler.TaskList) error {
	for port := range b.Out {
		out := &b.Out[port]
		if !out.Present() {
			continue
		}
		if list.Len() == 1 && r.sig.Outputs[port].Free {
			list.Head.Out[port] = out.Move()
			continue
		}
		var err error
		if done, failed := r.scatterWhole(b, list, port); done || failed != nil {
			if failed != nil {
				return failed
			}
			continue
		}
		if out.DType == tensor.Bytes {
			err = r.scatterBytes(b, list, port)
		} else {
			err = r.scatterFixed(b, list, port)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *Runner) scatterFixed(b *backends.Batch, list *scheduler.TaskList, port int) error {
	out := &b.Out[port]
	row := 0
	if b.Rows > 0 {
		row = out.Len / b.Rows
	}
	unpad := r.s.Padding.output(port)
	i := 0
	for w := list.Head; w != nil; w = w.Next() {
		q := &b.Requests[i]
		i++
		if q.Err != nil {
			continue
		}
		view := out.Retain()
		view.Off += q.First * row
		view.Len = q.Rows * row
		view.Shape.SetDim(0, int64(q.Rows))
		if unpad != nil && w.In[unpad.like].Present() {
			if err := r.cut(b.Stream, &view, unpad.dim, w.In[unpad.like].Shape.Dim(unpad.likeDim)); err != nil {
				view.Release()
				return status.Errorf(status.Internal, "cannot unpad output '%s' of model '%s': %v", r.sig.Outputs[port].Name, r.sig.Model, err)
			}
		}
		w.Out[port] = view
	}
	return nil
}

// cut shortens t to n along dimension dim. A single run becomes a prefix; several are copied.
func (r *Runner) cut(s tensor.Stream, t *tensor.Tensor, dim int, n int64) error {
	if n >= t.Shape.Dim(dim) {
		return nil
	}
	outer, have := segments(t, dim)
	shape := t.Shape
	shape.SetDim(dim, n)
	keep := elementBytes(t.DType, n*inner(&shape, dim))
	if outer == 1 {
		t.Shape, t.Len = shape, keep
		return nil
	}
	if atDevice(t) {
		return cutAt(s, t, shape, outer, have, keep)
	}
	short, err := tensor.New(r.s.Alloc, t.DType, shape)
	if err != nil {
		return err
	}
	src, dst := t.Bytes(), short.Bytes()
	for range outer {
		dst = dst[copy(dst, src[:keep]):]
		src = src[have:]
	}
	t.Release()
	*t = short
	return nil
}

// scatterBytes scatters BYTES elements, whose sizes differ.
func (r *Runner) scatterBytes(b *backends.Batch, list *scheduler.TaskList, port int) error {
	out := &b.Out[port]
	perRow := int64(0)
	if b.Rows > 0 {
		perRow = out.Shape.Elements() / int64(b.Rows)
	}
	rest, off := out.Bytes(), out.Off
	i := 0
	for w := list.Head; w != nil; w = w.Next() {
		q := &b.Requests[i]
		i++
		before := len(rest)
		for range perRow * int64(q.Rows) {
			var ok bool
			if _, rest, ok = tensor.NextBytes(rest); !ok {
				return status.Errorf(status.Internal, "output '%s' of model '%s' holds fewer elements than its shape %s", r.sig.Outputs[port].Name, r.sig.Model, out.Shape)
			}
		}
		n := before - len(rest)
		if q.Err == nil {
			view := out.Retain()
			view.Off, view.Len = off, n
			view.Shape.SetDim(0, int64(q.Rows))
			w.Out[port] = view
		}
		off += n
	}
	return nil
}

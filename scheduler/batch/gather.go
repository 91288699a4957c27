package batch

import (
	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/scheduler"
)

// gather sets the inputs of the batch to the joined rows of all tasks. Rows that are neighbours in one
// buffer are not copied.
func (r *Runner) gather(b *backends.Batch, list *scheduler.TaskList) (err error) {
	if r.layout != nil {
		return r.gatherLayout(b, list)
	}
	for port := range b.In {
		if b.In[port].Present() {
			continue // joined at a device
		}
		if b.In[port], err = r.gatherRows(b, list, port); err != nil {
			return errGather(r.sig, port, err.Error())
		}
	}
	return nil
}

// gatherRows returns the joined rows of one input, absent when the tasks do not give it.
func (r *Runner) gatherRows(b *backends.Batch, list *scheduler.TaskList, port int) (tensor.Tensor, error) {
	first := &list.Head.In[port]
	if !first.Present() {
		return tensor.Tensor{}, nil
	}
	if joined, ok := join(list, port); ok {
		return joined, nil
	}
	p := r.s.Padding.input(port)
	switch {
	case p != nil:
		return r.gatherPadded(b, list, port, p)
	case first.DType == tensor.Bytes:
		return r.gatherBytes(b, list, port)
	default:
		return r.gatherFixed(b, list, port)
	}
}

// join returns one view over all tasks' tensors when they are neighbours in one buffer with equal row
// shapes, as the rows of a sealed list are.
func join(list *scheduler.TaskList, port int) (tensor.Tensor, bool) {
	first := &list.Head.In[port]
	rows, n := int64(0), 0
	for w := list.Head; w != nil; w = w.Next() {
		t := &w.In[port]
		if t.Buf != first.Buf || t.Off != first.Off+n || !sameRow(&t.Shape, &first.Shape) {
			return tensor.Tensor{}, false
		}
		rows += t.Shape.Dim(0)
		n += t.Len
	}
	whole := first.Retain()
	whole.Shape.SetDim(0, rows)
	whole.Len = n
	return whole, true
}

// sameRow compares shapes without their batch dimension.
func sameRow(a, b *tensor.Shape) bool {
	if a.Rank() != b.Rank() {
		return false
	}
	bd := b.Dims()
	for i, d := range a.Dims() {
		if i > 0 && d != bd[i] {
			return false
		}
	}
	return true
}

func (r *Runner) gatherFixed(b *backends.Batch, list *scheduler.TaskList, port int) (tensor.Tensor, error) {
	shape := list.Head.In[port].Shape
	shape.SetDim(0, int64(b.Rows))
	out, err := tensor.New(r.s.Alloc, list.Head.In[port].DType, shape)
	if err != nil {
		return out, err
	}
	dst := out.Bytes()
	for w := list.Head; w != nil; w = w.Next() {
		dst = dst[copy(dst, w.In[port].Bytes()):]
	}
	return out, nil
}

func (r *Runner) gatherBytes(b *backends.Batch, list *scheduler.TaskList, port int) (tensor.Tensor, error) {
	shape := list.Head.In[port].Shape
	shape.SetDim(0, int64(b.Rows))
	n := 0
	for w := list.Head; w != nil; w = w.Next() {
		n += w.In[port].Len
	}
	out, err := tensor.NewBytes(r.s.Alloc, shape, n)
	if err != nil {
		return out, err
	}
	dst := out.Bytes()
	for w := list.Head; w != nil; w = w.Next() {
		dst = dst[copy(dst, w.In[port].Bytes()):]
	}
	return out, nil
}

// gatherPadded pads every row to the longest along the padded dimension. For example, rows [1,2] and
// [3] with padding 0 become [1,2] and [3,0].
func (r *Runner) gatherPadded(b *backends.Batch, list *scheduler.TaskList, port int, p *padInput) (tensor.Tensor, error) {
	shape := list.Head.In[port].Shape
	longest := int64(0)
	for w := list.Head; w != nil; w = w.Next() {
		longest = max(longest, w.In[port].Shape.Dim(p.dim))
	}
	shape.SetDim(0, int64(b.Rows))
	shape.SetDim(p.dim, longest)
	out, err := tensor.New(r.s.Alloc, list.Head.In[port].DType, shape)
	if err != nil {
		return out, err
	}
	dst := out.Bytes()
	for w := list.Head; w != nil; w = w.Next() {
		t := &w.In[port]
		outer, seg := segments(t, p.dim)
		pad := elementBytes(t.DType, longest*inner(&t.Shape, p.dim)) - seg
		src := t.Bytes()
		for range outer {
			dst = dst[copy(dst, src[:seg]):]
			src = src[seg:]
			p.fill(dst[:pad])
			dst = dst[pad:]
		}
	}
	return out, nil
}

// segments returns how many runs t has up to dimension dim, and the bytes of each.
func segments(t *tensor.Tensor, dim int) (outer, size int) {
	outer = 1
	for i := range dim {
		outer *= int(t.Shape.Dim(i))
	}
	return outer, elementBytes(t.DType, t.Shape.Dim(dim)*inner(&t.Shape, dim))
}

// inner returns the elements of one index of dimension dim.
func inner(s *tensor.Shape, dim int) int64 {
	n := int64(1)
	for _, d := range s.Dims()[dim+1:] {
		n *= d
	}
	return n
}

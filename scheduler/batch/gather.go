package batch

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/scheduler"
)

// gather forms the inputs of the batch at the place of the instance. Neighbours in one buffer are not copied.
func (r *Runner) gather(b *backends.Batch, list *scheduler.TaskList) (err error) {
	if err := r.bring(b, list); err != nil {
		return err
	}
	if r.layout != nil {
		err = r.gatherLayout(b, list)
	}
	for port := range b.In {
		if r.layout != nil || b.In[port].Present() {
			continue // joined already
		}
		if b.In[port], err = r.gatherRows(b, list, port); err != nil {
			return errGather(r.sig, port, err.Error())
		}
	}
	if err != nil {
		return err
	}
	return r.moveInputs(b, list.Head)
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
	pad := r.s.Padding.input(port)
	shape := joinedShape(list, port, b.Rows, pad)
	if pad != nil {
		return r.gatherPadded(list, port, shape, pad)
	}
	return r.concatenate(list, port, shape)
}

// joinedShape returns the shape of the joined rows, padded ones up to the longest.
func joinedShape(list *scheduler.TaskList, port, rows int, pad *padInput) tensor.Shape {
	shape := list.Head.In[port].Shape
	shape.SetDim(0, int64(rows))
	if pad == nil {
		return shape
	}
	longest := int64(0)
	for w := list.Head; w != nil; w = w.Next() {
		longest = max(longest, w.In[port].Shape.Dim(pad.dim))
	}
	shape.SetDim(pad.dim, longest)
	return shape
}

// join returns one view over all tasks' tensors when they are neighbours in one buffer with equal row shapes.
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
	x, y := a.Dims(), b.Dims()
	return len(x) == len(y) && (len(x) == 0 || slices.Equal(x[1:], y[1:]))
}

// concatenate returns the elements of all tasks in order, as a tensor of the given shape.
func (r *Runner) concatenate(list *scheduler.TaskList, port int, shape tensor.Shape) (tensor.Tensor, error) {
	n := 0
	for w := list.Head; w != nil; w = w.Next() {
		n += w.In[port].Len
	}
	out, err := tensor.NewBytes(r.s.Alloc, shape, n)
	if err != nil {
		return out, err
	}
	out.DType = list.Head.In[port].DType
	dst := out.Bytes()
	for w := list.Head; w != nil; w = w.Next() {
		dst = dst[copy(dst, w.In[port].Bytes()):]
	}
	return out, nil
}

// gatherPadded pads every row to the longest. For example, rows [1,2] and [3] with padding 0 become [1,2] and [3,0].
func (r *Runner) gatherPadded(list *scheduler.TaskList, port int, shape tensor.Shape, p *padInput) (tensor.Tensor, error) {
	out, err := tensor.New(r.s.Alloc, list.Head.In[port].DType, shape)
	if err != nil {
		return out, err
	}
	_, size := segments(&out, p.dim)
	dst := out.Bytes()
	for w := list.Head; w != nil; w = w.Next() {
		outer, seg := segments(&w.In[port], p.dim)
		src := w.In[port].Bytes()
		for range outer {
			p.fill(dst[copy(dst, src[:seg]):size])
			src, dst = src[seg:], dst[size:]
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
	return outer, int(t.Shape.Dim(dim)*inner(&t.Shape, dim)) * t.DType.Size()
}

// inner returns the elements of one index of dimension dim.
func inner(s *tensor.Shape, dim int) int64 {
	n := int64(1)
	for _, d := range s.Dims()[dim+1:] {
		n *= d
	}
	return n
}

// Measure sets the task's Shape, Length and Elements. Shape is a hash (FNV-1a over words) of what
// must agree between the tasks of a batch: which inputs are given, their dimensions apart from the
// batch dimension and padded ones, and how the padded ones compare. A queue compares tasks with
// equal hashes in full (Compatible), so that a collision costs a smaller batch and nothing else.
func (r *Runner) Measure(w *scheduler.Task) {
	const offset, prime = 14695981039346656037, 1099511628211
	key, length, elements, first := uint64(offset), int32(0), int64(0), int64(-1)
	for port := range w.In {
		t := &w.In[port]
		if !t.Present() {
			key = (key ^ uint64(port) ^ 1<<63) * prime
			continue
		}
		n := int64(1)
		if r.sig.Inputs[port].Unbatched {
			key = (key ^ 1<<61) * prime // any shapes are joined
			elements += t.Shape.Elements()
			continue
		}
		pad, whole := r.s.Padding.input(port), r.sig.Inputs[port].ShapeTensor
		if whole {
			key = hashValues(key, t)
		}
		for i, d := range t.Shape.Dims() {
			n *= d
			switch {
			case i == 0 && r.sig.MaxBatch > 0 && !whole:
			case pad != nil && i == pad.dim:
				length = max(length, int32(min(d, 1<<30)))
				key = (key ^ relation(d, &first)) * prime
			default:
				key = (key ^ uint64(d)) * prime
			}
		}
		key = (key ^ 1<<62) * prime
		elements += n
	}
	w.Shape, w.Length, w.Elements = key, length, elements
}

// hashValues adds the few values of a shape tensor to a hash of Measure: at a device its address, because the host cannot read it.
func hashValues(key uint64, t *tensor.Tensor) uint64 {
	const prime = 1099511628211
	if atDevice(t) {
		return (key ^ uint64(uintptr(t.Buf.Pointer())) ^ uint64(t.Off)) * prime
	}
	for _, b := range t.Bytes() {
		key = (key ^ uint64(b)) * prime
	}
	return key
}

// sameValues compares shape tensors. Those at a device are the same only if they are one tensor: the host cannot read them.
func sameValues(x, y *tensor.Tensor) bool {
	if atDevice(x) || atDevice(y) {
		return x.Buf == y.Buf && x.Off == y.Off && x.Len == y.Len
	}
	return bytes.Equal(x.Bytes(), y.Bytes())
}

// relation returns how a padded length compares with the first one of its task, which it sets, and whether it is 0.
// Padding must not hide a difference: a mask that is shorter than its ids must fail in a batch as it does alone.
func relation(length int64, first *int64) uint64 {
	if *first < 0 {
		*first = length
	}
	r := uint64(cmp.Compare(length, *first) + 1)
	if length == 0 {
		r |= 4
	}
	return r
}

// Uniform reports whether all tasks of the list may share a batch.
func (r *Runner) Uniform(list *scheduler.TaskList) bool {
	for w := list.Head.Next(); w != nil; w = w.Next() {
		if !r.Compatible(list.Head, w) {
			return false
		}
	}
	return true
}

// Compatible reports whether two tasks may share a batch. Traced tasks of a backends.SerialModel are executed alone: their times are their own.
func (r *Runner) Compatible(a, b *scheduler.Task) bool {
	if r.s.Serial != nil && (a.Traced != nil || b.Traced != nil) {
		return false
	}
	firstA, firstB := int64(-1), int64(-1)
	for port := range a.In {
		x, y := &a.In[port], &b.In[port]
		if x.Present() != y.Present() {
			return false
		}
		if !x.Present() {
			continue
		}
		decl := &r.sig.Inputs[port]
		switch {
		case decl.Unbatched:
			continue
		case x.Shape.Rank() != y.Shape.Rank(), decl.ShapeTensor && !sameValues(x, y):
			return false
		}
		pad, yd := r.s.Padding.input(port), y.Shape.Dims()
		for i, d := range x.Shape.Dims() {
			switch {
			case i == 0 && !decl.ShapeTensor:
			case pad != nil && i == pad.dim:
				if relation(d, &firstA) != relation(yd[i], &firstB) {
					return false
				}
			case d != yd[i]:
				return false
			}
		}
	}
	return true
}

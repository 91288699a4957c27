package batch

import (
	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/scheduler"
)

// scatterWhole scatters an output that has no rows; done is false for any other.
func (r *Runner) scatterWhole(b *backends.Batch, list *scheduler.TaskList, port int) (done bool, err error) {
	switch {
	case r.sig.Outputs[port].ShapeTensor:
		i := 0
		for w := list.Head; w != nil; w = w.Next() {
			if b.Requests[i].Err == nil {
				w.Out[port] = b.Out[port].Retain()
			}
			i++
		}
		return true, nil
	case r.layout == nil || r.layout.source[port] < 0:
		return false, nil
	default:
		return true, r.scatterElements(b, list, port)
	}
}

// scatterElements sets the output of each task to the next elements, as many as the output's dims have
// with the extents of the task's input in place of -1.
func (r *Runner) scatterElements(b *backends.Batch, list *scheduler.TaskList, port int) error {
	out, source := &b.Out[port], r.layout.source[port]
	have, want := out.Shape.Elements(), int64(0)
	for w := list.Head; w != nil; w = w.Next() {
		shape := r.scatteredShape(port, &w.In[source])
		n := shape.Elements()
		if n < 0 || n > have-want {
			want = have + 1
			break
		}
		want += n
	}
	if want != have {
		return status.Errorf(status.Internal, "output '%s' of model '%s' has %d elements, expected those of input '%s' of the batch",
			r.sig.Outputs[port].Name, r.sig.Model, have, r.sig.Inputs[source].Name)
	}
	rest, i := out.Retain(), 0
	defer rest.Release()
	for w := list.Head; w != nil; w = w.Next() {
		shape := r.scatteredShape(port, &w.In[source])
		view, ok := cutElements(&rest, shape)
		if !ok {
			return status.Errorf(status.Internal, "output '%s' of model '%s' holds fewer elements than its shape %s", r.sig.Outputs[port].Name, r.sig.Model, out.Shape)
		}
		if b.Requests[i].Err == nil {
			w.Out[port] = view.Retain()
		}
		i++
	}
	return nil
}

// cutElements removes the elements of a shape from the front of rest and returns them as a borrowed
// view.
func cutElements(rest *tensor.Tensor, shape tensor.Shape) (tensor.Tensor, bool) {
	n := int(shape.Elements()) * rest.DType.Size()
	if rest.DType == tensor.Bytes {
		left := rest.Bytes()
		for range shape.Elements() {
			var ok bool
			if _, left, ok = tensor.NextBytes(left); !ok {
				return tensor.Tensor{}, false
			}
		}
		n = rest.Len - len(left)
	}
	view := *rest
	view.Shape, view.Len = shape, n
	rest.Off += n
	rest.Len -= n
	return view, true
}

// scatteredShape returns the shape of one task's part of an output: the output's dims, with the extents
// of the input in place of -1.
func (r *Runner) scatteredShape(port int, in *tensor.Tensor) tensor.Shape {
	shape := r.sig.Outputs[port].FullDims(r.sig.MaxBatch)
	for i, d := range shape.Dims() {
		switch {
		case d >= 0:
		case in.Present() && i < in.Shape.Rank():
			shape.SetDim(i, in.Shape.Dim(i))
		default:
			shape.SetDim(i, 0)
		}
	}
	return shape
}

package tensorop

import (
	"slices"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
)

// reshape changes the shape; the output shares the memory of the input.
type reshape struct {
	batch int
	dims  tensor.Shape // at most one is -1
	rest  int          // the index of that one, or -1
}

func makeReshape(s *spec) {
	list := s.ints("dims")
	r := &reshape{batch: s.batch, rest: slices.Index(list, -1)}
	wide := make([]int64, len(list))
	known := int64(1)
	for i, d := range list {
		if d < -1 || d == -1 && i != r.rest {
			s.refuse("parameter 'dims' is '%s', expected extents, of which one at most is -1", s.param("dims"))
		}
		if wide[i] = int64(d); d >= 0 {
			known *= wide[i]
		}
	}
	if len(list) > maxRank {
		s.refuse("parameter 'dims' is '%s', expected at most %d", s.param("dims"), maxRank)
	}
	r.dims = tensor.Of(wide...)
	out := r.dims
	if n := s.in[0].Dims.Elements(); n >= 0 {
		if n > 0 && known > 0 && r.rest >= 0 {
			out.SetDim(r.rest, n/known)
		}
		if out.Elements() != n {
			s.refuse("dims %s have %d elements, which %s do not hold", s.in[0].Dims, n, r.dims)
		}
	}
	s.output(s.in[0].DType, out)
	s.run = r
}

func (r *reshape) run(b *backends.Batch, _ *scratch) error {
	in := &b.In[0]
	shape := r.dims
	if r.batch > 0 {
		shape = shape.Prepend(in.Shape.Dim(0))
	}
	n := in.Shape.Elements()
	if r.rest >= 0 {
		shape.SetDim(r.rest+r.batch, 1)
		if known := shape.Elements(); known > 0 {
			shape.SetDim(r.rest+r.batch, n/known)
		} else {
			shape.SetDim(r.rest+r.batch, 0)
		}
	}
	if shape.Elements() != n {
		return errShape("a tensor of shape %s cannot be reshaped to %s", &in.Shape, &r.dims)
	}
	out := in.Retain()
	out.Shape = shape
	b.SetOutput(0, out)
	return nil
}

// transpose reorders axes, as numpy.transpose does.
type transpose struct {
	batch int
	axes  []int // the batch dimension among them
}

func makeTranspose(s *spec) {
	rank := s.rank()
	axes := s.axes()
	switch {
	case len(axes) == 0:
		for i := range rank {
			axes = append(axes, rank-1-i)
		}
	case len(axes) != rank:
		s.refuse("parameter 'axes' is '%s', expected all %d axes", s.param("axes"), rank)
	}
	dims := s.in[0].Dims
	t := &transpose{batch: s.batch, axes: make([]int, s.batch+rank)}
	for i, a := range axes {
		dims.SetDim(i, s.in[0].Dims.Dim(a))
		t.axes[s.batch+i] = s.batch + a
	}
	s.output(s.in[0].DType, dims)
	s.moves(t, 0, nil)
}

func (t *transpose) move(m *moving) error {
	in := &m.in[0]
	shape := in.Shape
	for i, a := range t.axes {
		shape.SetDim(i, in.Shape.Dim(a))
	}
	out, err := m.alloc(0, in.DType, &shape)
	if err != nil {
		return err
	}
	permuted(&m.x.loop, &shape, &in.Shape, t.axes)
	spread(&m.x.loop, out, 0, in)
	return nil
}

// permuted makes a nest that reads a tensor of shape from with its axes in another order.
func permuted(w *nest, shape, from *tensor.Shape, axes []int) {
	w.start(shape, 2)
	var strides dims
	step := 1
	for i := from.Rank() - 1; i >= 0; i-- {
		strides[i] = step
		step *= int(from.Dim(i))
	}
	for i, a := range axes {
		w.stride[1][i] = strides[a]
	}
}

package tensorop

import (
	"slices"
	"strconv"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// concat joins tensors along an axis, which for stack is a new one.
type concat struct {
	batch, axis int
	stack       bool
}

func makeConcat(s *spec) {
	s.same(0)
	axis := s.axis(s.rank(), 0)
	out := s.in[0].Dims
	for _, p := range s.in[1:] {
		if out.Rank() != p.Dims.Rank() {
			s.refuse("input '%s' has dims %s, expected as many as %s", p.Name, p.Dims, out)
		}
		for i, d := range p.Dims.Dims() {
			have := out.Dim(i)
			switch {
			case i == axis && (have < 0 || d < 0):
				out.SetDim(i, -1)
			case i == axis:
				out.SetDim(i, have+d)
			case have < 0:
				out.SetDim(i, d)
			case d >= 0 && d != have:
				s.refuse("input '%s' has dims %s, which differ from %s outside of axis %d", p.Name, p.Dims, out, axis)
			}
		}
	}
	s.output(s.in[0].DType, out)
	s.moves(&concat{batch: s.batch, axis: s.batch + axis}, 0, nil)
}

func makeStack(s *spec) {
	s.same(0)
	axis := s.axis(s.rank()+1, 0)
	dims := s.in[0].Dims
	for _, p := range s.in[1:] {
		if !p.Dims.Matches(dims) && !dims.Matches(p.Dims) {
			s.refuse("input '%s' has dims %s, expected %s", p.Name, p.Dims, dims)
		}
	}
	out := slices.Insert(slices.Clone(dims.Dims()), axis, int64(len(s.in)))
	s.output(s.in[0].DType, tensor.Of(out...))
	s.moves(&concat{batch: s.batch, axis: s.batch + axis, stack: true}, 0, nil)
}

func (c *concat) move(m *moving) error {
	shape, err := c.shape(m.in)
	if err != nil {
		return err
	}
	out, err := m.alloc(0, m.in[0].DType, &shape)
	if err != nil {
		return err
	}
	after := 1
	for _, d := range shape.Dims()[c.axis+1:] {
		after *= int(d)
	}
	step, at := int(shape.Dim(c.axis))*after, 0
	for i := range m.in {
		n := after
		if !c.stack {
			n *= int(m.in[i].Shape.Dim(c.axis))
		}
		blocks(&m.x.loop, 0, n, step, int(m.in[i].Shape.Elements()))
		spread(&m.x.loop, out, at, &m.in[i])
		at += n
	}
	return nil
}

// blocks makes a nest over dense blocks of n elements, whose starts are apart elements from each other in operand k.
func blocks(w *nest, k, n, apart, elements int) {
	*w = nest{rank: 2, n: 2, empty: elements == 0}
	w.size[0], w.size[1] = elements/max(1, n), n
	w.dense(1 - k)
	w.stride[k][0], w.stride[k][1] = apart, 1
}

// shape returns the shape of the output.
func (c *concat) shape(in []tensor.Tensor) (tensor.Shape, error) {
	out := in[0].Shape
	for i := range in[1:] {
		next := &in[i+1].Shape
		want := out
		if !c.stack && want.Rank() == next.Rank() {
			want.SetDim(c.axis, next.Dim(c.axis))
		}
		if !want.Equal(*next) {
			return out, errShape("shapes %s and %s do not fit together", &out, next)
		}
		if !c.stack {
			out.SetDim(c.axis, out.Dim(c.axis)+next.Dim(c.axis))
		}
	}
	if c.stack {
		var dims [maxRank]int64
		all := append(dims[:0], out.Dims()[:c.axis]...)
		all = append(append(all, int64(len(in))), out.Dims()[c.axis:]...)
		out = tensor.Of(all...)
	}
	return out, nil
}

// split is the inverse of concat.
type split struct {
	batch, axis int
	sizes       []int
	// parts is the number of equal outputs; 0 where sizes has the extents.
	parts int
}

func makeSplit(s *spec) {
	axis := s.axis(s.rank(), 0)
	v := &split{batch: s.batch, axis: s.batch + axis}
	v.sizes = s.ints("sizes")
	d, sum := s.in[0].Dims.Dim(axis), 0
	for _, n := range v.sizes {
		if sum += n; n < 0 {
			s.refuse("parameter 'sizes' is '%s', expected extents", s.param("sizes"))
		}
	}
	if len(v.sizes) == 1 {
		v.parts, sum = v.sizes[0], int(d)
	}
	switch {
	case len(v.sizes) == 0 || len(v.sizes) == 1 && (v.parts == 0 || v.parts > 1<<10 || d > 0 && int(d)%v.parts != 0):
		s.refuse("parameter 'sizes' is '%s', expected the extents of the outputs or a number of outputs that divides %d", s.param("sizes"), d)
	case d >= 0 && sum != int(d):
		s.refuse("parameter 'sizes' is '%s', expected a sum of %d", s.param("sizes"), d)
	}
	for i := range max(v.parts, len(v.sizes)) {
		dims := s.in[0].Dims
		switch {
		case v.parts == 0:
			dims.SetDim(axis, int64(v.sizes[i]))
		case d >= 0:
			dims.SetDim(axis, d/int64(v.parts))
		}
		s.output(s.in[0].DType, dims)
		if i >= len(s.s.Outputs) {
			s.out[i] = config.Port{Name: "OUTPUT" + strconv.Itoa(i), DType: s.in[0].DType, Dims: dims}
		}
	}
	s.moves(v, 0, nil)
}

func (v *split) move(m *moving) error {
	in := &m.in[0]
	d, sum := int(in.Shape.Dim(v.axis)), 0
	for _, n := range v.sizes {
		sum += n
	}
	if v.parts == 0 && sum != d || v.parts > 0 && d%v.parts != 0 {
		return status.Errorf(status.InvalidArg, "an axis of %d elements cannot be split as parameter 'sizes' says", d)
	}
	after := 1
	for _, n := range in.Shape.Dims()[v.axis+1:] {
		after *= int(n)
	}
	at := 0
	for i := range max(v.parts, len(v.sizes)) {
		n := v.sizes[min(i, len(v.sizes)-1)]
		if v.parts > 0 {
			n = d / v.parts
		}
		shape := in.Shape
		shape.SetDim(v.axis, int64(n))
		out, err := m.alloc(i, in.DType, &shape)
		if err != nil {
			return err
		}
		w := &m.x.loop
		blocks(w, 1, n*after, d*after, int(shape.Elements()))
		w.at[1] = at
		spread(w, out, 0, in)
		at += n * after
	}
	return nil
}

package tensorop

import (
	"slices"
	"strconv"
	"strings"

	"tutti/backends"
	"tutti/core/status"
	"tutti/core/tensor"
)

// reshape shares its input's memory.
type reshape struct {
	batch int
	dims  tensor.Shape // at most one is -1
	rest  int          // which, or -1
}

func makeReshape(s *spec) error {
	list, err := s.ints("dims")
	if err != nil {
		return err
	}
	r := &reshape{batch: s.batch, rest: slices.Index(list, -1)}
	wide := make([]int64, len(list))
	known := int64(1)
	for i, d := range list {
		if d < -1 || d == -1 && i != r.rest {
			return s.errorf("parameter 'dims' is '%s', expected extents, of which one at most is -1", s.param("dims"))
		}
		if wide[i] = int64(d); d >= 0 {
			known *= wide[i]
		}
	}
	if len(list) > maxRank {
		return s.errorf("parameter 'dims' is '%s', expected at most %d", s.param("dims"), maxRank)
	}
	r.dims = tensor.Of(wide...)
	out := r.dims
	if n := s.in[0].Dims.Elements(); n >= 0 {
		if n > 0 && known > 0 && r.rest >= 0 {
			out.SetDim(r.rest, n/known)
		}
		if out.Elements() != n {
			return s.errorf("dims %s have %d elements, which %s do not hold", s.in[0].Dims, n, r.dims)
		}
	}
	s.output(s.in[0].DType, out)
	s.run = r
	return nil
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

// transpose moves axes.
type transpose struct {
	batch int
	axes  []int // with that of the batch
}

func makeTranspose(s *spec) error {
	rank := s.rank()
	axes, err := s.axes("axes", rank)
	switch {
	case err != nil:
		return err
	case len(axes) == 0:
		for i := range rank {
			axes = append(axes, rank-1-i)
		}
	case len(axes) != rank:
		return s.errorf("parameter 'axes' is '%s', expected all %d axes", s.param("axes"), rank)
	}
	dims := s.in[0].Dims
	t := &transpose{batch: s.batch, axes: make([]int, s.batch+rank)}
	for i, a := range axes {
		dims.SetDim(i, s.in[0].Dims.Dim(a))
		t.axes[s.batch+i] = s.batch + a
	}
	s.output(s.in[0].DType, dims)
	s.run = t
	return nil
}

func (t *transpose) run(b *backends.Batch, x *scratch) error { return moves(b, x, t, 0, nil) }

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

// permuted makes a nest that reads a tensor with its axes in another order.
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

// span is what is taken of one axis. A nil bound is the end that the step comes from or
// goes to.
type span struct {
	first, last  *int
	step         int
	single, gaps bool // one element, whose axis goes; the axes between
}

// slice takes parts of a tensor.
type slice struct {
	batch int
	spans []span
}

func makeSlice(s *spec) error {
	text := s.param("slice")
	if text == "" {
		return s.errorf("parameter 'slice' is needed, such as '0:2, ..., -1'")
	}
	v := &slice{batch: s.batch}
	gaps := -1
	for i, part := range strings.Split(text, ",") {
		p, ok := parseSpan(strings.TrimSpace(part))
		if !ok || p.gaps && gaps >= 0 {
			return s.errorf("parameter 'slice' is '%s', expected start:stop:step, an index or one '...' for each axis", text)
		}
		if p.gaps {
			gaps = i
			continue
		}
		v.spans = append(v.spans, p)
	}
	rank := s.rank()
	if len(v.spans) > rank {
		return s.errorf("parameter 'slice' is '%s', expected at most %d axes", text, rank)
	}
	if gaps < 0 {
		gaps = len(v.spans)
	}
	for len(v.spans) < rank {
		v.spans = slices.Insert(v.spans, gaps, span{step: 1})
	}
	var out []int64
	for i, p := range v.spans {
		d := s.in[0].Dims.Dim(i)
		n := int64(-1)
		if d >= 0 {
			_, count, ok := p.bounds(int(d))
			if !ok {
				return s.errorf("index %d is outside of axis %d, which has %d", *p.first, i, d)
			}
			n = int64(count)
		}
		if !p.single {
			out = append(out, n)
		}
	}
	s.output(s.in[0].DType, tensor.Of(out...))
	s.run = v
	return nil
}

func parseSpan(text string) (span, bool) {
	if text == "..." {
		return span{gaps: true}, true
	}
	parts := strings.Split(text, ":")
	var at [3]*int
	for i, p := range parts {
		if p = strings.TrimSpace(p); i > 2 {
			return span{}, false
		} else if p == "" {
			continue
		}
		n, err := strconv.ParseInt(p, 10, 32)
		if err != nil {
			return span{}, false
		}
		wide := int(n)
		at[i] = &wide
	}
	p := span{first: at[0], last: at[1], step: 1, single: len(parts) == 1}
	if at[2] != nil {
		p.step = *at[2]
	}
	return p, p.step != 0 && (!p.single || p.first != nil)
}

// bounds returns where a span begins on an axis of d elements, and how many it has.
func (p *span) bounds(d int) (first, count int, ok bool) {
	if p.single {
		if first = *p.first; first < 0 {
			first += d
		}
		return first, 1, first >= 0 && first < d
	}
	low, high := 0, d // where first and last can be
	if p.step < 0 {
		low, high = -1, d-1
	}
	first, last := low, high
	if p.step < 0 {
		first, last = high, low
	}
	if p.first != nil {
		first = within(*p.first, d, low, high)
	}
	if p.last != nil {
		last = within(*p.last, d, low, high)
	}
	if p.step > 0 {
		return first, max(0, (last-first+p.step-1)/p.step), true
	}
	return first, max(0, (first-last-p.step-1)/-p.step), true
}

// within returns a bound, which may count from the end, between two.
func within(at, d, low, high int) int {
	if at < 0 {
		at += d
	}
	return max(low, min(at, high))
}

func (v *slice) run(b *backends.Batch, x *scratch) error { return moves(b, x, v, 0, nil) }

func (v *slice) move(m *moving) error {
	in := &m.in[0]
	w := &m.x.loop
	w.start(&in.Shape, 2)
	w.dense(1)
	for i := range v.spans {
		p, axis := &v.spans[i], i+v.batch
		first, count, ok := p.bounds(w.size[axis])
		if !ok {
			return status.Errorf(status.InvalidArg, "index %d is outside of axis %d, which has %d", *p.first, i, w.size[axis])
		}
		if count > 0 {
			w.at[1] += first * w.stride[1][axis]
		}
		w.stride[1][axis] *= p.step
		w.size[axis] = count
		w.nothing = w.nothing || count == 0
	}
	w.dense(0)
	shape := in.Shape
	to := v.batch
	for i := range v.spans {
		if !v.spans[i].single {
			shape.SetDim(to, int64(w.size[i+v.batch]))
			to++
		}
	}
	shape = cut(&shape, to)
	if first, ok := view(m, &shape); ok {
		size := in.DType.Size()
		out := m.b.In[0].Retain()
		out.Shape, out.Off, out.Len = shape, out.Off+first*size, int(shape.Elements())*size
		m.b.SetOutput(0, out)
		return nil
	}
	out, err := m.alloc(0, in.DType, &shape)
	if err == nil {
		spread(w, out, 0, in)
	}
	return err
}

// view tells whether what is taken lies together, and where it begins.
func view(m *moving, shape *tensor.Shape) (int, bool) {
	w := &m.x.loop
	first := w.at[1]
	if m.text || w.nothing {
		return 0, false
	}
	w.fold()
	return first, w.rank == 1 && (w.stride[1][0] == 1 || shape.Elements() == 1)
}

// cut returns the first n dimensions.
func cut(shape *tensor.Shape, n int) tensor.Shape { return tensor.Of(shape.Dims()[:n]...) }

package tensorop

import (
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
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
	axes []int // the batch dimension among them
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
	t := &transpose{make([]int, s.batch+rank)}
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
	return m.spread(out, 0, in)
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

// span is a numpy slice of one axis: first:last:step, where a nil bound is left out. For
// example, "1:" is {first: 1, step: 1}.
type span struct {
	first, last      *int
	step             int
	single, ellipsis bool // one index, which drops the axis; "..."
}

// slice selects parts of a tensor as numpy's basic indexing does.
type slice struct {
	batch int
	spans []span
}

func makeSlice(s *spec) {
	spans := s.spans()
	var out []int64
	for i, p := range spans {
		n, d := int64(-1), s.in[0].Dims.Dim(i)
		if d >= 0 {
			_, count, ok := p.bounds(int(d))
			if !ok {
				s.refuse("index %d is outside of axis %d, which has %d", *p.first, i, d)
			}
			n = int64(count)
		}
		if !p.single {
			out = append(out, n)
		}
	}
	s.output(s.in[0].DType, tensor.Of(out...))
	s.moves(&slice{batch: s.batch, spans: spans}, 0, nil)
}

// spans reads parameter "slice" as a span for each axis of the first input.
func (s *spec) spans() []span {
	text, rank := s.param("slice"), s.rank()
	if text == "" {
		s.refuse("parameter 'slice' is needed, such as '0:2, ..., -1'")
	}
	var spans []span
	ellipsis := -1
	for i, part := range strings.Split(text, ",") {
		p, ok := parseSpan(strings.TrimSpace(part))
		switch {
		case !ok || p.ellipsis && ellipsis >= 0:
			s.refuse("parameter 'slice' is '%s', expected start:stop:step, an index or one '...' for each axis", text)
		case p.ellipsis:
			ellipsis = i
		default:
			spans = append(spans, p)
		}
	}
	if len(spans) > rank {
		s.refuse("parameter 'slice' is '%s', expected at most %d axes", text, rank)
	}
	if ellipsis < 0 {
		ellipsis = len(spans)
	}
	return slices.Insert(spans, ellipsis, slices.Repeat([]span{{step: 1}}, rank-len(spans))...)
}

// parseSpan parses one element of parameter "slice". It reports false if the syntax is wrong.
func parseSpan(text string) (span, bool) {
	if text == "..." {
		return span{ellipsis: true}, true
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

// bounds returns the first element of a span on an axis of d elements, and the number of
// elements. It reports false for an index outside of the axis.
func (p *span) bounds(d int) (first, count int, ok bool) {
	if p.single {
		if first = *p.first; first < 0 {
			first += d
		}
		return first, 1, first >= 0 && first < d
	}
	low, high := 0, d // the range of first and last
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

// within returns a bound, which counts from the end when negative, limited to low and high.
func within(at, d, low, high int) int {
	if at < 0 {
		at += d
	}
	return max(low, min(at, high))
}

func (v *slice) move(m *moving) error {
	in, w := &m.in[0], &m.x.loop
	shape, err := v.visit(w, &in.Shape)
	if err != nil {
		return err
	}
	first := w.at[1]
	if !m.text && !w.empty {
		w.fold()
	}
	// Elements that lie next to each other share the memory of the input.
	if !m.text && !w.empty && w.rank == 1 && (w.stride[1][0] == 1 || shape.Elements() == 1) {
		size := in.DType.Size()
		out := m.b.In[0].Retain()
		out.Shape, out.Off, out.Len = shape, out.Off+first*size, int(shape.Elements())*size
		m.b.SetOutput(0, out)
		return nil
	}
	out, err := m.alloc(0, in.DType, &shape)
	if err != nil {
		return err
	}
	return m.spread(out, 0, in)
}

// visit sets the loops of w to the selected elements of a tensor of shape in, and returns the shape of the output.
func (v *slice) visit(w *nest, in *tensor.Shape) (tensor.Shape, error) {
	w.start(in, 2)
	w.dense(1)
	shape, to := *in, v.batch
	for i := range v.spans {
		p, axis := &v.spans[i], i+v.batch
		first, count, ok := p.bounds(w.size[axis])
		if !ok {
			return shape, status.Errorf(status.InvalidArg, "index %d is outside of axis %d, which has %d", *p.first, i, w.size[axis])
		}
		if count > 0 {
			w.at[1] += first * w.stride[1][axis]
		}
		w.stride[1][axis] *= p.step
		w.size[axis] = count
		w.empty = w.empty || count == 0
		if !p.single {
			shape.SetDim(to, int64(count))
			to++
		}
	}
	w.dense(0)
	return firstDims(&shape, to), nil
}

func firstDims(shape *tensor.Shape, n int) tensor.Shape { return tensor.Of(shape.Dims()[:n]...) }

package tensorop

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// concat joins tensors along an axis, which for stack is a new one.
type concat struct {
	axis  int // counted with the batch dimension
	stack bool
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
	s.moves(&concat{axis: s.batch + axis}, 0, nil)
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
	s.moves(&concat{axis: s.batch + axis, stack: true}, 0, nil)
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
		if err := m.spread(out, at, &m.in[i]); err != nil {
			return err
		}
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
	if !c.stack {
		return out, nil
	}
	var dims [maxRank]int64
	return tensor.Of(append(append(append(dims[:0], out.Dims()[:c.axis]...), int64(len(in))), out.Dims()[c.axis:]...)...), nil
}

// split is the inverse of concat.
type split struct {
	axis  int // counted with the batch dimension
	sizes []int
	parts int // the number of equal outputs; 0 where sizes has the extents
}

func makeSplit(s *spec) {
	axis := s.axis(s.rank(), 0)
	v := &split{axis: s.batch + axis, sizes: s.ints("sizes")}
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
		if err := m.spread(out, 0, in); err != nil {
			return err
		}
		at += n * after
	}
	return nil
}

// pad adds elements before and after each axis, as numpy.pad does.
type pad struct {
	before, after dims // by axis, the batch dimension among them
	mode          string
	value         tensor.Tensor
	last          int // the last axis that is padded, counted with the batch dimension
}

func makePad(s *spec) {
	list := s.ints("pads")
	if len(list) != 2*s.rank() {
		s.refuse("parameter 'pads' is '%s', expected %d extents: before and after each axis", s.param("pads"), 2*s.rank())
	}
	p := &pad{mode: cmp.Or(s.param("mode"), "constant")}
	if !slices.Contains([]string{"constant", "edge", "reflect"}, p.mode) {
		s.refuse("parameter 'mode' is '%s', expected one of constant, edge, reflect", p.mode)
	}
	if s.param("value") == "" && s.in[0].DType != tensor.Bytes {
		p.value = s.fixed(s.in[0].DType, tensor.Of(), 0)
	} else {
		p.value = s.scalar("value", s.in[0].DType)
	}
	dims := s.in[0].Dims
	for i := range s.rank() {
		p.before[i+s.batch], p.after[i+s.batch] = list[2*i], list[2*i+1]
		if list[2*i]+list[2*i+1] > 0 || i == 0 {
			p.last = i + s.batch
		}
		if list[2*i] < 0 || list[2*i+1] < 0 {
			s.refuse("parameter 'pads' is '%s', expected no extents below 0", s.param("pads"))
		}
		if d := dims.Dim(i); d >= 0 {
			dims.SetDim(i, d+int64(list[2*i]+list[2*i+1]))
		}
	}
	s.output(s.in[0].DType, dims)
	s.moves(p, 0, &p.value)
}

func (p *pad) move(m *moving) error {
	in := &m.in[0]
	shape := in.Shape
	m.x.ints = m.x.ints[:0]
	for i, d := range in.Shape.Dims() {
		n := int(d) + p.before[i] + p.after[i]
		if d == 0 && n > 0 && p.mode != "constant" {
			return status.Errorf(status.InvalidArg, "axis %d has no elements, which mode '%s' cannot repeat", i, p.mode)
		}
		shape.SetDim(i, int64(n))
	}
	out, err := m.alloc(0, in.DType, &shape)
	if err != nil || shape.Elements() == 0 {
		return err
	}
	for i, d := range in.Shape.Dims() {
		for k := range int(shape.Dim(i)) {
			m.x.ints = append(m.x.ints, p.origin(k-p.before[i], int(d)))
		}
	}
	value := bitsOf(p.value.Bytes()[:p.value.DType.Size()])
	if m.text {
		value = 1 << sourceShift // the value is the source after the input
	}
	copiers[in.DType.Size()].pad(m, p, out, in, value)
	return nil
}

// origin returns the index of the input element for index at of an axis of d elements, or -1 for the value. at counts
// from the first input element. For example, -1 of mode reflect is element 1.
func (p *pad) origin(at, d int) int {
	switch {
	case at >= 0 && at < d:
		return at
	case p.mode == "constant":
		return -1
	case p.mode == "edge" || d == 1:
		return max(0, min(at, d-1))
	default:
		turn := 2 * (d - 1)
		at = (at%turn + turn) % turn
		return min(at, turn-at)
	}
}

// pad writes line by line along the last padded axis. Each of its elements is a unit of the
// elements of the axes after it. x.ints has the origins on each axis.
func (word[T]) pad(m *moving, p *pad, out, in *tensor.Tensor, bits uint64) {
	value := T(bits)
	dst, src := tensor.Slice[T](out), tensor.Slice[T](in)
	if out.Shape.Rank() == 0 {
		dst[0] = src[0]
		return
	}
	unit := 1
	for _, d := range in.Shape.Dims()[p.last+1:] {
		unit *= int(d)
	}
	w := &m.x.loop
	shape := firstDims(&out.Shape, p.last+1)
	w.start(&shape, 1)
	n, middle, left := w.size[p.last], int(in.Shape.Dim(p.last)), p.before[p.last]
	skip := 0
	for _, d := range w.size[:p.last] {
		skip += d
	}
	origins := m.x.ints[skip:][:n]
	for more := true; more; more = w.next() {
		line := dst[w.at[0]*unit:][:n*unit]
		from := p.line(m, in)
		if from < 0 {
			fill(line, value)
			continue
		}
		for i := 0; i < n; i++ {
			to := line[i*unit:]
			if i == left && middle > 0 {
				copy(to, src[from*unit:][:middle*unit])
				i += middle - 1
			} else if k := origins[i]; k < 0 {
				fill(to[:unit], value)
			} else {
				copy(to, src[(from+k)*unit:][:unit])
			}
		}
	}
}

// line returns where the input's line for the current line of the output begins, in units, or -1 for none.
func (p *pad) line(m *moving, in *tensor.Tensor) int {
	from, at, w := 0, 0, &m.x.loop
	for i := range p.last {
		k := m.x.ints[at+w.count[i]]
		if k < 0 {
			return -1
		}
		from = from*int(in.Shape.Dim(i)) + k
		at += w.size[i]
	}
	return from * int(in.Shape.Dim(p.last))
}

func fill[T any](dst []T, v T) {
	for i := range dst {
		dst[i] = v
	}
}

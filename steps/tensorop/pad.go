package tensorop

import (
	"slices"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// pad adds elements before and after each axis, as numpy.pad does.
type pad struct {
	before, after dims // by axis, the batch dimension among them
	mode          string
	value         tensor.Tensor
	source        uint64 // stands for the value among the sources of texts
	last          int    // the last axis that is padded, counted with the batch dimension
}

func makePad(s *spec) {
	list := s.ints("pads")
	if len(list) != 2*s.rank() {
		s.refuse("parameter 'pads' is '%s', expected %d extents: before and after each axis", s.param("pads"), 2*s.rank())
	}
	p := &pad{mode: s.param("mode"), source: 1 << sourceShift}
	if p.mode == "" {
		p.mode = "constant"
	}
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
	value := bitsAt(&p.value)
	if m.text {
		value = p.source
	}
	copierOf(in.DType).pad(m, p, out, in, value)
	return nil
}

// bitsAt returns the bits of the only element of a tensor, which has a fixed size.
func bitsAt(t *tensor.Tensor) uint64 {
	var bits uint64
	for i, v := range t.Bytes()[:t.DType.Size()] {
		bits |= uint64(v) << (8 * i)
	}
	return bits
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

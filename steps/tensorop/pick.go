package tensorop

import (
	"slices"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// gather selects elements, or whole subarrays of the axes after, by their indices on an axis.
type gather struct {
	batch, axis int
	fixed       tensor.Tensor // the indices of parameter "indices"
}

func makeGather(s *spec) {
	axis := s.axis(s.rank(), 0)
	g := &gather{batch: s.batch, axis: s.batch + axis}
	list := s.ints("indices")
	index := tensor.Of(int64(len(list)))
	switch {
	case len(s.in) == 2 && len(list) > 0:
		s.refuse("parameter 'indices' is set, but input '%s' has the indices", s.in[1].Name)
	case len(s.in) == 2:
		if d := s.in[1].DType; d != tensor.Int32 && d != tensor.Int64 {
			s.refuseType(1, "TYPE_INT32 or TYPE_INT64")
		}
		index = s.in[1].Dims
	case len(list) == 0:
		s.refuse("there are no indices: declare a second input or set parameter 'indices'")
	default:
		g.fixed = s.fixed(tensor.Int64, index, 0)
		d := int(s.in[0].Dims.Dim(axis))
		for i, n := range list {
			if d >= 0 && (n < -d || n >= d) {
				s.refuse("index %d is outside of axis %d, which has %d", n, axis, d)
			}
			tensor.Slice[int64](&g.fixed)[i] = int64(n)
		}
	}
	from := s.in[0].Dims.Dims()
	out := slices.Concat(from[:axis], index.Dims(), from[axis+1:])
	s.output(s.in[0].DType, tensor.Of(out...))
	s.moves(g, 0, nil)
}

func (g *gather) move(m *moving) error {
	in, index, skip := &m.in[0], &g.fixed, 0
	if !g.fixed.Present() {
		index, skip = &m.in[1], g.batch
	}
	var list [2 * maxRank]int64
	all := append(list[:0], in.Shape.Dims()[:g.axis]...)
	all = append(append(all, index.Shape.Dims()[skip:]...), in.Shape.Dims()[g.axis+1:]...)
	shape := tensor.Of(all...)
	out, err := m.alloc(0, in.DType, &shape)
	if err != nil {
		return err
	}
	rows, n := rowsOf(in, g.batch), int(in.Shape.Dim(g.axis))
	g.indices(m, index, rows, n)
	if shape.Elements() == 0 {
		return nil
	}
	if n == 0 {
		return status.Errorf(status.InvalidArg, "there is nothing to take from an axis of 0 elements")
	}
	t := taking{rows: rows, n: n, inner: 1, indices: m.x.ints, each: len(m.x.ints)}
	for _, d := range in.Shape.Dims()[g.axis+1:] {
		t.inner *= int(d)
	}
	t.outer = int(in.Shape.Elements()) / (rows * n * t.inner)
	if !g.fixed.Present() {
		t.each /= rows
	}
	copiers[in.DType.Size()].take(&t, out, in)
	return nil
}

// indices reads the indices to x.ints. A negative one counts from the end. One that is
// outside becomes 0 and fails its row, or all rows where it is fixed.
func (g *gather) indices(m *moving, index *tensor.Tensor, rows, n int) {
	m.x.ints = m.x.ints[:0]
	if index.DType == tensor.Int32 {
		for _, i := range tensor.Slice[int32](index) {
			m.x.ints = append(m.x.ints, int(i))
		}
	} else {
		for _, i := range tensor.Slice[int64](index) {
			m.x.ints = append(m.x.ints, int(i))
		}
	}
	count := len(m.x.ints)
	for k, i := range m.x.ints {
		if i >= 0 && i < n {
			continue
		}
		if i < 0 && i >= -n {
			m.x.ints[k] = i + n
			continue
		}
		m.x.ints[k] = 0
		err := status.Errorf(status.InvalidArg, "index %d is outside of an axis that has %d elements", i, n)
		for row := range rows {
			if g.fixed.Present() || row == k/(count/rows) {
				m.b.Fail(row, err)
			}
		}
	}
}

// taking describes a gather. The axis has n units of inner elements each. For each row, and for each of
// outer iterations of the axes before, the units that the row's indices name are copied.
type taking struct {
	rows, outer, n, inner int
	indices               []int
	each                  int // indices per row; all rows share them when there are no more
}

func (word[T]) take(t *taking, out, in *tensor.Tensor) {
	dst, src := tensor.Slice[T](out), tensor.Slice[T](in)
	indices := t.indices
	for row := range t.rows {
		if len(t.indices) > t.each {
			indices = t.indices[row*t.each : (row+1)*t.each]
		}
		for range t.outer {
			if t.inner == 1 {
				for k, i := range indices {
					dst[k] = src[i]
				}
				dst = dst[len(indices):]
			} else {
				for _, i := range indices {
					copy(dst, src[i*t.inner:(i+1)*t.inner])
					dst = dst[t.inner:]
				}
			}
			src = src[t.n*t.inner:]
		}
	}
}

// where selects elements of its second input where the first is true, else of the third.
type where struct{ batch int }

func makeWhere(s *spec) {
	if d := s.in[0].DType; d != tensor.Bool {
		s.refuseType(0, "TYPE_BOOL")
	}
	s.same(1)
	s.output(s.in[1].DType, s.joined(s.joined(s.in[1].Dims, s.in[2].Dims), s.in[0].Dims))
	s.moves(&where{s.batch}, 1, nil)
}

func (v *where) move(m *moving) error {
	shape, err := broadcast(&m.in[1].Shape, &m.in[2].Shape, v.batch)
	if err == nil {
		shape, err = broadcast(&shape, &m.in[0].Shape, v.batch)
	}
	if err != nil {
		return err
	}
	out, err := m.alloc(0, m.in[1].DType, &shape)
	if err != nil {
		return err
	}
	w := &m.x.loop
	w.start(&shape, 4)
	for k := range m.in {
		w.broadcast(k+1, &m.in[k].Shape, v.batch)
	}
	w.fold()
	if w.empty {
		return nil
	}
	copiers[out.DType.Size()].choose(w, out, m.in)
	return nil
}

func (word[T]) choose(w *nest, out *tensor.Tensor, in []tensor.Tensor) {
	dst, yes := tensor.Slice[T](out), in[0].Bytes()
	one, two := tensor.Slice[T](&in[1]), tensor.Slice[T](&in[2])
	n := w.inner()
	dense := w.step(1) == 1 && w.step(2) == 1 && w.step(3) == 1
	for more := true; more; more = w.next() {
		to, at, i, j := dst[w.at[0]:w.at[0]+n], w.at[1], w.at[2], w.at[3]
		if dense {
			c, a, b := yes[at:at+n], one[i:i+n], two[j:j+n]
			for k := range to {
				v := b[k]
				if c[k] != 0 {
					v = a[k]
				}
				to[k] = v
			}
			continue
		}
		for k := range to {
			v := two[j]
			if yes[at] != 0 {
				v = one[i]
			}
			to[k] = v
			at, i, j = at+w.step(1), i+w.step(2), j+w.step(3)
		}
	}
}

// oneHot expands each index to depth elements: 1 at the index, 0 elsewhere. For example,
// index 1 of depth 3 gives 0, 1, 0.
type oneHot struct {
	batch, depth int
	dtype        tensor.DType
	one          tensor.Tensor
}

func makeOneHot(s *spec) {
	if d := s.in[0].DType; d != tensor.Int32 && d != tensor.Int64 {
		s.refuseType(0, "TYPE_INT32 or TYPE_INT64")
	}
	d := s.dtype("dtype", tensor.FP32)
	depth, err := s.s.Int("depth", 1)
	if err != nil {
		panic(specError{err})
	}
	if d == tensor.Bytes {
		s.refuse("parameter 'dtype' is %s, expected numbers or BOOL", d)
	}
	s.output(d, tensor.Of(append(slices.Clone(s.in[0].Dims.Dims()), int64(depth))...))
	s.run = &oneHot{s.batch, depth, d, s.constant(d, tensor.Of(), []string{"1"}, "%s is none of type %s")}
}

func (o *oneHot) run(b *backends.Batch, x *scratch) error {
	in := &b.In[0]
	var list [maxRank]int64
	shape := tensor.Of(append(append(list[:0], in.Shape.Dims()...), int64(o.depth))...)
	out, err := b.Alloc(0, o.dtype, shape)
	if err != nil {
		return err
	}
	x.moving = moving{b: b, x: x}
	(&gather{}).indices(&x.moving, in, rowsOf(in, o.batch), o.depth)
	dst, one := out.Bytes(), o.one.Bytes()
	clear(dst)
	for k, i := range x.ints {
		copy(dst[(k*o.depth+i)*len(one):], one)
	}
	return nil
}

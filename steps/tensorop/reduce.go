package tensorop

import (
	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

var reduceNames = []string{"sum", "prod", "mean", "min", "max", "argmax", "argmin"}

// reduce combines all elements along some axes to one. Floating-point sums are added in the element type: pairwise, in
// 8 interleaved sums, where the last axis is reduced. FP16 and BF16 are computed as FP32 and rounded at the end.
type reduce struct {
	name     string
	batch    int
	reduced  [maxRank]bool // axes, the batch dimension among them
	order    []int         // the axes that stay, then the reduced ones
	adjacent bool          // the reduced axes follow one another
	keep     bool          // they stay with extent 1
	position bool          // argmax or argmin
	as, out  tensor.DType  // of the computation and of the output
}

func makeReduce(s *spec) {
	r := &reduce{name: s.name, batch: s.batch, position: s.name == "argmax" || s.name == "argmin"}
	r.setTypes(s)
	r.keep = s.flag("keep_dims")
	for _, a := range r.axes(s) {
		r.reduced[a+s.batch] = true
	}
	var last []int
	for i := range s.rank() + s.batch {
		if r.reduced[i] {
			last = append(last, i)
		} else {
			r.order = append(r.order, i)
		}
	}
	r.adjacent = len(last) == 0 || last[len(last)-1]-last[0] == len(last)-1
	r.order = append(r.order, last...)
	s.output(r.out, r.shape(&s.in[0].Dims, 0))
	s.run = r
}

// axes reads which axes are reduced: one for argmax and argmin, else all by default.
func (r *reduce) axes(s *spec) []int {
	if r.position {
		return []int{s.axis(s.rank(), -1)}
	}
	axes := s.axes()
	if len(axes) == 0 {
		for i := range s.rank() {
			axes = append(axes, i)
		}
	}
	return axes
}

// setTypes chooses the types of the computation and of the output.
func (r *reduce) setTypes(s *spec) {
	d := s.in[0].DType
	sums := r.name == "sum" || r.name == "prod"
	r.as, r.out = d, d
	switch {
	case d == tensor.Bytes:
		s.refuseType(0, "numbers")
	case isHalf(d):
		r.as = tensor.FP32
	case d == tensor.FP32 || d == tensor.FP64:
	case r.name == "mean":
		r.as, r.out = tensor.FP64, tensor.FP64
	case sums && d >= tensor.Uint8 && d <= tensor.Uint64:
		r.as, r.out = tensor.Uint64, tensor.Uint64
	case sums:
		r.as, r.out = tensor.Int64, tensor.Int64
	}
	if r.position {
		r.out = tensor.Int64
	}
}

// shape returns the dims of the output; batch of in's dimensions come before those of a row.
func (r *reduce) shape(in *tensor.Shape, batch int) tensor.Shape {
	out := *in
	to := 0
	for i, d := range in.Dims() {
		if r.reduced[i+r.batch-batch] {
			if !r.keep {
				continue
			}
			d = 1
		}
		out.SetDim(to, d)
		to++
	}
	return firstDims(&out, to)
}

func (r *reduce) run(b *backends.Batch, x *scratch) error {
	in := &b.In[0]
	shape := r.shape(&in.Shape, r.batch)
	out, err := b.Alloc(0, r.out, shape)
	if err != nil || shape.Elements() == 0 {
		return err
	}
	if in.DType != r.as {
		if in, err = x.converted(b, in, r.as); err != nil {
			return err
		}
	}
	in, g, err := r.lines(b, x, in)
	if err != nil {
		return err
	}
	result := out
	if isHalf(r.out) {
		if result, err = x.temp(b, tensor.FP32, &shape); err != nil {
			return err
		}
	}
	numbers[r.as].reduce(r, result, in, g)
	if result != out {
		_, err = convert(b, x, out, result, wrap)
	}
	return err
}

// lines says where the elements lie that are reduced to one: n of them, inner elements
// apart, and outer*inner such lines.
type lines struct{ outer, n, inner int }

// lines returns the layout of the reduced axes. Where they are not adjacent, the elements
// are first copied to a tensor whose last axes they are.
func (r *reduce) lines(b *backends.Batch, x *scratch, in *tensor.Tensor) (*tensor.Tensor, lines, error) {
	g := lines{1, 1, 1}
	before := true
	for i, d := range in.Shape.Dims() {
		switch {
		case r.reduced[i]:
			g.n, before = g.n*int(d), false
		case before || !r.adjacent:
			g.outer *= int(d)
		default:
			g.inner *= int(d)
		}
	}
	if g.n == 0 && r.name != "sum" && r.name != "prod" && r.name != "mean" {
		return nil, g, status.Errorf(status.InvalidArg, "operation '%s' of no elements has no result", r.name)
	}
	if r.adjacent {
		return in, g, nil
	}
	shape := in.Shape
	for i, a := range r.order {
		shape.SetDim(i, in.Shape.Dim(a))
	}
	t, err := x.temp(b, in.DType, &shape)
	if err != nil {
		return nil, g, err
	}
	permuted(&x.loop, &shape, &in.Shape, r.order)
	spread(&x.loop, t, 0, in)
	return t, g, nil
}

func (number[T]) reduce(r *reduce, out, in *tensor.Tensor, g lines) {
	src := tensor.Slice[T](in)
	switch {
	case r.position:
		dst := tensor.Slice[int64](out)
		for o := range g.outer {
			for i := range g.inner {
				line := src[o*g.n*g.inner+i : (o+1)*g.n*g.inner]
				dst[o*g.inner+i] = extremeAt(line, g.inner, r.name == "argmin")
			}
		}
	case g.inner == 1:
		reduceLines(r.name, tensor.Slice[T](out), src, g)
	default:
		reduceRows(r.name, tensor.Slice[T](out), src, g)
	}
}

// beyond reports whether v takes the place of best as the greatest element, or the least:
// it is greater (less), or one of them is NaN, as numpy has it.
func beyond[T tensor.Number](v, best T, least bool) bool {
	if least {
		return !(v >= best) //nolint:staticcheck // v < best differs for NaN
	}
	return !(v <= best) //nolint:staticcheck // v > best differs for NaN
}

// extremeAt returns the index of the first greatest or least of the elements that are so
// far apart in line. The first NaN counts as both.
func extremeAt[T tensor.Number](line []T, apart int, least bool) int64 {
	best, at, from := line[0], 0, apart
	if apart == 1 && !least {
		if v, n := greatestFast(line); n > 0 {
			best, at, from = v, -1, n
		}
	}
	for i := from; i < len(line) && !isNaN(best); i += apart {
		if v := line[i]; beyond(v, best, least) {
			best, at = v, i
		}
	}
	if at < 0 {
		at = firstFast(line, from, best)
	}
	return int64(at / apart)
}

// extremeOf returns the greatest or least element, or the first NaN if there is one.
func extremeOf[T tensor.Number](line []T, least bool) T {
	best, done := line[0], 0
	if !least {
		best, done = greatestFast(line)
	}
	for _, v := range line[done:] {
		if beyond(v, best, least) {
			if best = v; isNaN(v) {
				break
			}
		}
	}
	return best
}

// reduceLines reduces elements that lie next to each other.
func reduceLines[T tensor.Number](name string, dst, src []T, g lines) {
	for o := range dst {
		line := src[o*g.n : (o+1)*g.n]
		switch name {
		case "sum":
			dst[o] = sum(line)
		case "mean":
			dst[o] = sum(line) / T(g.n)
		case "prod":
			p := T(1)
			for _, v := range line {
				p *= v
			}
			dst[o] = p
		default:
			dst[o] = extremeOf(line, name == "min")
		}
	}
}

// pairwise is the number of elements above which the two halves of a line are summed
// separately. This keeps the rounding error small.
const pairwise = 256

func sum[T tensor.Number](line []T) T {
	if len(line) > pairwise {
		half := len(line) / 16 * 8
		return sum(line[:half]) + sum(line[half:])
	}
	var a, b, c, d, e, f, g, h T
	for len(line) >= 8 {
		a, b, c, d = a+line[0], b+line[1], c+line[2], d+line[3]
		e, f, g, h = e+line[4], f+line[5], g+line[6], h+line[7]
		line = line[8:]
	}
	total := ((a + b) + (c + d)) + ((e + f) + (g + h))
	for _, v := range line {
		total += v
	}
	return total
}

// reduceRows reduces n rows of inner elements to one row.
func reduceRows[T tensor.Number](name string, dst, src []T, g lines) {
	for o := range g.outer {
		to := dst[o*g.inner : (o+1)*g.inner]
		rows := src[o*g.n*g.inner : (o+1)*g.n*g.inner]
		if g.n == 0 {
			fill(to, T(truth(name == "prod")))
		} else {
			copy(to, rows)
			rows = rows[g.inner:]
		}
		if (name == "sum" || name == "mean") && !hasVectors[T]() {
			for ; len(rows) >= 4*g.inner; rows = rows[4*g.inner:] {
				addRows(to, rows)
			}
		}
		for ; len(rows) > 0; rows = rows[g.inner:] {
			reduceRow(name, to, rows[:len(to)])
		}
		if name == "mean" {
			for i := range to {
				to[i] /= T(g.n)
			}
		}
	}
}

// addRows adds four consecutive rows to one.
func addRows[T tensor.Number](to, rows []T) {
	n := len(to)
	a, b, c, d := rows[:n], rows[n:][:n], rows[2*n:][:n], rows[3*n:][:n]
	for i, v := range to {
		to[i] = v + a[i] + b[i] + c[i] + d[i]
	}
}

func reduceRow[T tensor.Number](name string, to, row []T) {
	switch name {
	case "sum", "mean":
		done := computeVector(add, to, to, row)
		plainLoop(add, to[done:], to[done:], row[done:])
	case "prod":
		plainLoop(multiply, to, to, row)
	case "min":
		plainLoop(minimum, to, to, row)
	default:
		plainLoop(maximum, to, to, row)
	}
}

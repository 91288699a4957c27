package tensorop

import (
	"slices"

	"tutti/backends"
	"tutti/core/status"
	"tutti/core/tensor"
)

var reduceNames = []string{"sum", "prod", "mean", "min", "max"}

// reduce makes one element of all that lie along some axes. Sums of floating-point
// numbers are made in float32 or float64 of 8 interleaved sums where the last axis goes;
// FP16 and BF16 are rounded at the end.
type reduce struct {
	name     string
	batch    int
	gone     [maxRank]bool // with the batch dimension
	order    []int         // the axes that stay, then those that go
	sorted   bool          // those that go lie together
	keep     bool
	as, out  tensor.DType
	position bool // argmax and argmin
}

func makeReduce(s *spec) error {
	d := s.in[0].DType
	r := &reduce{name: s.name, batch: s.batch}
	if err := r.types(s, d); err != nil {
		return err
	}
	var err error
	if r.keep, err = s.flag("keep_dims"); err != nil {
		return err
	}
	rank := s.rank()
	axes, err := s.axes("axes", rank)
	if err != nil {
		return err
	}
	switch {
	case r.position:
		axis, err := s.axis(rank, -1)
		if err != nil {
			return err
		}
		axes = []int{axis}
	case len(axes) == 0:
		for i := range rank {
			axes = append(axes, i)
		}
	}
	for _, a := range axes {
		r.gone[a+s.batch] = true
	}
	for i := range rank + s.batch {
		if !r.gone[i] {
			r.order = append(r.order, i)
		}
	}
	slices.Sort(axes)
	r.sorted = true
	for i, a := range axes {
		r.order = append(r.order, a+s.batch)
		r.sorted = r.sorted && (i == 0 || axes[i-1] == a-1)
	}
	dims := r.shape(&s.in[0].Dims, 0)
	s.output(r.out, dims)
	s.run = r
	return nil
}

// types says what is computed with and what comes out.
func (r *reduce) types(s *spec, d tensor.DType) error {
	float := isHalf(d) || d == tensor.FP32 || d == tensor.FP64
	sums := r.name == "sum" || r.name == "prod"
	r.position = r.name == "argmax" || r.name == "argmin"
	r.as, r.out = d, d
	switch {
	case d == tensor.Bytes:
		return s.errorf("input '%s' is %s, expected numbers", s.in[0].Name, d.ConfigName())
	case isHalf(d):
		r.as = tensor.FP32
	case float:
	case r.name == "mean":
		r.as, r.out = tensor.FP64, tensor.FP64
	case sums && slices.Contains([]tensor.DType{tensor.Uint8, tensor.Uint16, tensor.Uint32, tensor.Uint64}, d):
		r.as, r.out = tensor.Uint64, tensor.Uint64
	case sums:
		r.as, r.out = tensor.Int64, tensor.Int64
	case d == tensor.Bool:
		r.as = tensor.Uint8
	}
	if r.position {
		r.out = tensor.Int64
	}
	return nil
}

// shape returns the dims of the output; skip dimensions come before those of a row.
func (r *reduce) shape(in *tensor.Shape, skip int) tensor.Shape {
	out := *in
	to := 0
	for i, d := range in.Dims() {
		gone := r.gone[i+r.batch-skip]
		if gone && !r.keep {
			continue
		}
		if gone {
			d = 1
		}
		out.SetDim(to, d)
		to++
	}
	return cut(&out, to)
}

func (r *reduce) run(b *backends.Batch, x *scratch) error {
	in := b.In[0]
	shape := r.shape(&in.Shape, r.batch)
	out, err := b.Alloc(0, r.out, shape)
	if err != nil || shape.Elements() == 0 {
		return err
	}
	if in.DType != r.as && (in.DType != tensor.Bool || r.as != tensor.Uint8) {
		wide, err := widenedOf(b, &in, r.as)
		if err != nil {
			return err
		}
		defer wide.Release()
		in = wide
	}
	g, err := r.line(b, x, &in)
	if err != nil {
		return err
	}
	if r.gathered() {
		defer in.Release()
	}
	if isHalf(r.out) {
		result, err := temporary(b, tensor.FP32, &shape)
		if err != nil {
			return err
		}
		defer result.Release()
		r.compute(&result, &in, g)
		_, err = convert(b, out, &result, wrap)
		return err
	}
	r.compute(out, &in, g)
	return nil
}

// lineup is how the axes that go lie: n of them, with inner elements after each.
type lineup struct{ outer, n, inner int }

// gathered tells whether elements are moved so that the axes that go are the last.
func (r *reduce) gathered() bool { return !r.sorted }

// line finds out how the axes that go lie. Where they are not together, in becomes a
// tensor whose last axes they are, which moves to the caller.
func (r *reduce) line(b *backends.Batch, x *scratch, in *tensor.Tensor) (lineup, error) {
	g := lineup{1, 1, 1}
	before := true
	for i, d := range in.Shape.Dims() {
		switch {
		case r.gone[i]:
			g.n, before = g.n*int(d), false
		case before || r.gathered():
			g.outer *= int(d)
		default:
			g.inner *= int(d)
		}
	}
	if g.n == 0 && r.name != "sum" && r.name != "prod" && r.name != "mean" {
		return g, status.Errorf(status.InvalidArg, "operation '%s' of no elements has no result", r.name)
	}
	if !r.gathered() {
		return g, nil
	}
	shape := in.Shape
	for i, a := range r.order {
		shape.SetDim(i, in.Shape.Dim(a))
	}
	t, err := temporary(b, in.DType, &shape)
	if err != nil {
		return g, err
	}
	permuted(&x.loop, &shape, &in.Shape, r.order)
	spread(&x.loop, &t, 0, in)
	*in = t
	return g, nil
}

func (r *reduce) compute(out, in *tensor.Tensor, g lineup) {
	switch in.DType {
	case tensor.Int8:
		reduceAll[int8](r, out, in, g)
	case tensor.Int16:
		reduceAll[int16](r, out, in, g)
	case tensor.Int32:
		reduceAll[int32](r, out, in, g)
	case tensor.Int64:
		reduceAll[int64](r, out, in, g)
	case tensor.Uint8, tensor.Bool:
		reduceAll[uint8](r, out, in, g)
	case tensor.Uint16:
		reduceAll[uint16](r, out, in, g)
	case tensor.Uint32:
		reduceAll[uint32](r, out, in, g)
	case tensor.Uint64:
		reduceAll[uint64](r, out, in, g)
	case tensor.FP32:
		reduceAll[float32](r, out, in, g)
	default:
		reduceAll[float64](r, out, in, g)
	}
}

func reduceAll[T tensor.Number](r *reduce, out, in *tensor.Tensor, g lineup) {
	src := tensor.Slice[T](in)
	switch {
	case r.position && r.name == "argmax":
		positions(tensor.Slice[int64](out), src, g, true)
	case r.position:
		positions(tensor.Slice[int64](out), src, g, false)
	case g.inner == 1:
		reduceLines(r.name, tensor.Slice[T](out), src, g)
	default:
		reduceRows(r.name, tensor.Slice[T](out), src, g)
	}
}

// positions finds the first of the greatest or least; what is no number is both.
func positions[T tensor.Number](dst []int64, src []T, g lineup, greatest bool) {
	for o := range g.outer {
		for i := range g.inner {
			line := src[o*g.n*g.inner+i : (o+1)*g.n*g.inner]
			if greatest {
				dst[o*g.inner+i] = greatestAt(line, g.inner)
			} else {
				dst[o*g.inner+i] = leastAt(line, g.inner)
			}
		}
	}
}

// isNaN tells what is no number.
func isNaN[T tensor.Number](v T) bool { return v != v } //nolint:gocritic // which alone differs from itself

// after tells whether a is greater than b or one of them is no number.
func after[T tensor.Number](a, b T) bool { return !(a <= b) } //nolint:staticcheck // a > b says something else of what is no number

// greatestAt goes through every apart-th element.
func greatestAt[T tensor.Number](line []T, apart int) int64 {
	if apart == 1 {
		if best, n := greatestFast(line); n > 0 {
			return greatestAfter(line, n, best)
		}
	}
	best, where := line[0], 0
	for at := apart; at < len(line) && !isNaN(best); at += apart {
		if v := line[at]; after(v, best) {
			best, where = v, at
		}
	}
	return int64(where / apart)
}

// greatestAfter is greatestAt where the greatest of the first n elements is known.
func greatestAfter[T tensor.Number](line []T, n int, best T) int64 {
	where := -1
	for k := n; k < len(line) && !isNaN(best); k++ {
		if v := line[k]; after(v, best) {
			best, where = v, k
		}
	}
	if where < 0 {
		where = firstFast(line, n, best)
	}
	return int64(where)
}

func leastAt[T tensor.Number](line []T, apart int) int64 {
	best, where := line[0], 0
	for at := apart; at < len(line) && !isNaN(best); at += apart {
		if v := line[at]; after(best, v) {
			best, where = v, at
		}
	}
	return int64(where / apart)
}

// greatestOf returns the greatest, or what is no number if there is such.
func greatestOf[T tensor.Number](line []T) T {
	best, done := greatestFast(line)
	for _, v := range line[done:] {
		if after(v, best) {
			if best = v; isNaN(v) {
				break
			}
		}
	}
	return best
}

func leastOf[T tensor.Number](line []T) T {
	best := line[0]
	for _, v := range line {
		if after(best, v) {
			if best = v; isNaN(v) {
				break
			}
		}
	}
	return best
}

// reduceLines reduces elements that lie together.
func reduceLines[T tensor.Number](name string, dst, src []T, g lineup) {
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
		case "min":
			dst[o] = leastOf(line)
		default:
			dst[o] = greatestOf(line)
		}
	}
}

// half of more than so many elements are added by themselves, which keeps the error small.
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

// reduceRows reduces rows of inner elements to one.
func reduceRows[T tensor.Number](name string, dst, src []T, g lineup) {
	for o := range g.outer {
		to := dst[o*g.inner : (o+1)*g.inner]
		rows := src[o*g.n*g.inner : (o+1)*g.n*g.inner]
		if g.n == 0 {
			fill(to, T(truth(name == "prod")))
		} else {
			copy(to, rows)
			rows = rows[g.inner:]
		}
		if (name == "sum" || name == "mean") && !fast[T]() {
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

// addRows adds four rows, one after the other.
func addRows[T tensor.Number](to, rows []T) {
	n := len(to)
	a, b, c, d := rows[:n], rows[n:][:n], rows[2*n:][:n], rows[3*n:][:n]
	for i, v := range to {
		to[i] = v + a[i] + b[i] + c[i] + d[i]
	}
}

func reduceRow[T tensor.Number](name string, to, row []T) {
	row = row[:len(to)]
	switch name {
	case "sum", "mean":
		done := computeVector(add, to, to, row)
		to, row = to[done:], row[done:]
		for i, v := range row {
			to[i] += v
		}
	case "prod":
		for i, v := range row {
			to[i] *= v
		}
	case "min":
		for i, v := range row {
			to[i] = min(to[i], v)
		}
	default:
		for i, v := range row {
			to[i] = max(to[i], v)
		}
	}
}

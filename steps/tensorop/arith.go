package tensorop

import (
	"math"
	"strconv"

	"tutti/backends"
	"tutti/core/status"
	"tutti/core/tensor"
)

// code is an operation of two operands.
type code uint8

const (
	add code = iota
	subtract
	multiply
	divide
	floorDivide
	remainder
	power
	minimum
	maximum
	equal
	notEqual
	less
	lessEqual
	greater
	greaterEqual
	and
	or
	xor
)

var arithNames = []string{"add", "subtract", "multiply", "divide", "floor_divide", "remainder", "power", "minimum", "maximum"}

// tile is how many elements an operand that is repeated is made to have.
const tile = 256

// tiles holds operands that are repeated.
type tiles struct {
	i8  [2][tile]int8
	i16 [2][tile]int16
	i32 [2][tile]int32
	i64 [2][tile]int64
	u8  [2][tile]uint8
	u16 [2][tile]uint16
	u32 [2][tile]uint32
	u64 [2][tile]uint64
	f32 [2][tile]float32
	f64 [2][tile]float64
}

// pair is an operation of two operands that are broadcast.
type pair struct {
	code  code
	batch int
	// value is the second operand where that is no input; absent else. First when swap.
	value tensor.Tensor
	swap  bool
	// as is the type that is computed with, and out that of the output.
	as, out tensor.DType
}

func makeArith(s *spec) error {
	d := s.in[0].DType
	switch {
	case d == tensor.Bool || d == tensor.Bytes:
		return s.errorf("input '%s' is %s, expected numbers", s.in[0].Name, d.ConfigName())
	case isHalf(d):
		return makePair(s, code(indexOf(arithNames, s.name)), tensor.FP32, d)
	case s.name == "divide" && d != tensor.FP32:
		return makePair(s, divide, tensor.FP64, tensor.FP64)
	default:
		return makePair(s, code(indexOf(arithNames, s.name)), d, d)
	}
}

func indexOf(list []string, name string) int {
	for i, n := range list {
		if n == name {
			return i
		}
	}
	return -1
}

// makePair makes an operation that computes with type as and puts out another, dims as
// the operands are broadcast.
func makePair(s *spec, c code, as, out tensor.DType) error {
	p := &pair{code: c, batch: s.batch, as: as, out: out}
	shape := s.in[0].Dims
	switch {
	case len(s.in) == 2 && s.param("value") != "":
		return s.errorf("parameter 'value' is set, but input '%s' is the second operand", s.in[1].Name)
	case len(s.in) == 2:
		if err := s.same(0); err != nil {
			return err
		}
		var err error
		if shape, err = s.joined(shape, s.in[1].Dims); err != nil {
			return err
		}
	case s.param("value") == "":
		return s.errorf("there is one operand: declare a second input or set parameter 'value'")
	default:
		var err error
		if p.value, err = s.scalar("value", s.in[0].DType); err != nil {
			return err
		}
		if p.swap, err = s.flag("swap"); err != nil {
			return err
		}
	}
	s.output(out, shape)
	s.run = p
	return nil
}

// scalar reads parameter key as one element of a type.
func (s *spec) scalar(key string, d tensor.DType) (tensor.Tensor, error) {
	text := s.param(key)
	t, err := fixed(d, tensor.Of(), tensor.EncodedLen(len(text)))
	if err != nil {
		return t, err
	}
	if d == tensor.Bytes {
		copy(t.Bytes(), tensor.AppendBytes(nil, text))
		return t, nil
	}
	if err := setText(&t, 0, []byte(text)); err != nil {
		return t, s.errorf("parameter '%s' is %s, expected a number of type %s", key, strconv.Quote(text), d)
	}
	return t, nil
}

// fixed returns a tensor in memory that lives as long as the step: it is never released.
func fixed(d tensor.DType, shape tensor.Shape, size int) (tensor.Tensor, error) {
	if d == tensor.Bytes {
		return tensor.NewBytes(heap{}, shape, size)
	}
	return tensor.New(heap{}, d, shape)
}

func (p *pair) run(b *backends.Batch, x *scratch) error {
	one, two := &b.In[0], &p.value
	if !p.value.Present() {
		two = &b.In[1]
	} else if p.swap {
		one, two = two, one
	}
	shape, err := p.shape(one, two)
	if err != nil {
		return err
	}
	out, err := b.Alloc(0, p.out, shape)
	if err != nil {
		return err
	}
	x.loop.start(&shape, 3)
	if x.loop.nothing {
		return nil
	}
	p.place(&x.loop, 1, one)
	p.place(&x.loop, 2, two)
	x.loop.fold()
	if one.DType == p.as {
		return p.compute(b, x, out, one, two)
	}
	return p.widened(b, x, out, one, two)
}

// place says how an operand is read. A value has no batch dimension.
func (p *pair) place(w *nest, k int, t *tensor.Tensor) {
	if t != &p.value {
		w.broadcast(k, &t.Shape, p.batch)
	}
}

// shape returns the shape that both are broadcast to.
func (p *pair) shape(one, two *tensor.Tensor) (tensor.Shape, error) {
	switch {
	case one == &p.value:
		return two.Shape, nil
	case two == &p.value:
		return one.Shape, nil
	default:
		return broadcast(&one.Shape, &two.Shape, p.batch)
	}
}

// broadcast returns the shape that both are broadcast to.
func broadcast(one, two *tensor.Shape, batch int) (tensor.Shape, error) {
	if one.Rank() < two.Rank() {
		one, two = two, one
	}
	out := *one
	missing := one.Rank() - two.Rank()
	for i := one.Rank() - 1; i >= missing+batch; i-- {
		m, n := one.Dim(i), two.Dim(i-missing)
		if m != n && n != 1 {
			if m != 1 {
				return out, errShape("shapes %s and %s cannot be broadcast together", one, two)
			}
			out.SetDim(i, n)
		}
	}
	return out, nil
}

// widened computes with operands of another type than theirs.
func (p *pair) widened(b *backends.Batch, x *scratch, out, one, two *tensor.Tensor) error {
	wide1, err := widenedOf(b, one, p.as)
	if err != nil {
		return err
	}
	defer wide1.Release()
	wide2, err := widenedOf(b, two, p.as)
	if err != nil {
		return err
	}
	defer wide2.Release()
	if p.as == out.DType || p.code >= equal {
		return p.compute(b, x, out, &wide1, &wide2)
	}
	result, err := temporary(b, p.as, &out.Shape)
	if err != nil {
		return err
	}
	defer result.Release()
	if err := p.compute(b, x, &result, &wide1, &wide2); err != nil {
		return err
	}
	_, err = convert(b, out, &result, wrap)
	return err
}

// widenedOf returns a tensor of another type; it moves to the caller.
func widenedOf(b *backends.Batch, t *tensor.Tensor, as tensor.DType) (tensor.Tensor, error) {
	wide, err := temporary(b, as, &t.Shape)
	if err == nil {
		_, err = convert(b, &wide, t, wrap)
	}
	return wide, err
}

func (p *pair) compute(b *backends.Batch, x *scratch, out, one, two *tensor.Tensor) error {
	t := &x.tiles
	switch p.as {
	case tensor.Bool:
		return pairLoop(p, b, x, &t.u8, out, one, two)
	case tensor.Int8:
		return pairLoop(p, b, x, &t.i8, out, one, two)
	case tensor.Int16:
		return pairLoop(p, b, x, &t.i16, out, one, two)
	case tensor.Int32:
		return pairLoop(p, b, x, &t.i32, out, one, two)
	case tensor.Int64:
		return pairLoop(p, b, x, &t.i64, out, one, two)
	case tensor.Uint8:
		return pairLoop(p, b, x, &t.u8, out, one, two)
	case tensor.Uint16:
		return pairLoop(p, b, x, &t.u16, out, one, two)
	case tensor.Uint32:
		return pairLoop(p, b, x, &t.u32, out, one, two)
	case tensor.Uint64:
		return pairLoop(p, b, x, &t.u64, out, one, two)
	case tensor.FP32:
		return pairLoop(p, b, x, &t.f32, out, one, two)
	default:
		return pairLoop(p, b, x, &t.f64, out, one, two)
	}
}

// pairLoop goes over all elements in runs: an operand is read as it lies, or repeats a
// few elements, of which a tile is made.
func pairLoop[T tensor.Number](p *pair, b *backends.Batch, x *scratch, t *[2][tile]T, out, one, two *tensor.Tensor) error {
	w := &x.loop
	from1, from2 := tensor.Slice[T](one), tensor.Slice[T](two)
	level, n := w.rank-1, w.inner()
	period1, period2 := 1-w.step(1), 1-w.step(2)
	if wide1, wide2 := w.period(1), w.period(2); n < tile/4 && wide1 >= 0 && wide2 >= 0 {
		period1, period2 = wide1, wide2
		level, n = level-1, n*w.size[level-1]
	}
	for more := true; more; more = w.advance(level - 1) {
		run1, most := tiled(&t[0], from1[w.at[1]:], period1, n)
		run2, most := tiled(&t[1], from2[w.at[2]:], period2, most)
		for done := 0; done < n; {
			count := min(n-done, most)
			if !chunk(p.code, out, w.at[0]+done, run1[:count], run2[:count]) {
				blame(p, b, out, w.at[0]+done, run2[:count])
			}
			if period1 == 0 {
				run1 = run1[count:]
			}
			if period2 == 0 {
				run2 = run2[count:]
			}
			done += count
		}
	}
	return nil
}

// period returns after how many elements operand k repeats itself in the two innermost
// loops as one, 0 when it is dense there and -1 when it is neither.
func (w *nest) period(k int) int {
	if w.rank < 2 {
		return -1
	}
	n := w.inner()
	switch outer := w.stride[k][w.rank-2]; {
	case outer == 0 && w.step(k) == 0:
		return 1
	case outer == 0 && n <= tile:
		return n
	case outer == n && w.step(k) == 1:
		return 0
	default:
		return -1
	}
}

// tiled returns the elements of an operand that the next at most so many go through.
func tiled[T tensor.Number](t *[tile]T, src []T, period, most int) ([]T, int) {
	if period == 0 {
		return src, most
	}
	most = min(most, tile/period*period)
	copy(t[:most], src[:min(period, most)])
	for have := period; have < most; have *= 2 {
		copy(t[have:most], t[:have])
	}
	return t[:most], most
}

// chunk computes elements of the output from the given one on. Not all may be possible.
func chunk[T tensor.Number](c code, out *tensor.Tensor, at int, one, two []T) bool {
	if c >= equal {
		compareChunk(c, out.Bytes()[at:at+len(one)], one, two)
		return true
	}
	dst := tensor.Slice[T](out)[at : at+len(one)]
	done := computeVector(c, dst, one, two)
	dst, one, two = dst[done:], one[done:], two[done:]
	switch {
	case c < divide:
		simpleChunk(c, dst, one, two)
	case c == minimum:
		for i := range dst {
			dst[i] = min(one[i], two[i])
		}
	case c == maximum:
		for i := range dst {
			dst[i] = max(one[i], two[i])
		}
	case isFloat[T]():
		floatChunk(c, dst, one, two)
	default:
		return intChunk(c, dst, one, two)
	}
	return true
}

// simpleChunk is what all numbers have.
func simpleChunk[T tensor.Number](c code, dst, one, two []T) {
	one, two = one[:len(dst)], two[:len(dst)]
	switch c {
	case add:
		for i := range dst {
			dst[i] = one[i] + two[i]
		}
	case subtract:
		for i := range dst {
			dst[i] = one[i] - two[i]
		}
	default:
		for i := range dst {
			dst[i] = one[i] * two[i]
		}
	}
}

func floatChunk[T tensor.Number](c code, dst, one, two []T) {
	one, two = one[:len(dst)], two[:len(dst)]
	for i, v := range one {
		switch c {
		case divide:
			dst[i] = v / two[i]
		case power:
			dst[i] = T(math.Pow(float64(v), float64(two[i])))
		case floorDivide:
			dst[i], _ = divided(v, two[i])
		default:
			_, dst[i] = divided(v, two[i])
		}
	}
}

// divided returns the quotient rounded down and what remains, which has the sign of b.
func divided[T tensor.Number](a, b T) (quotient, rest T) {
	m := T(math.Mod(float64(a), float64(b)))
	if b == 0 {
		return a / b, m
	}
	q := (a - m) / b
	if m == 0 {
		m = T(math.Copysign(0, float64(b)))
	} else if (b < 0) != (m < 0) {
		m += b
		q--
	}
	if q == 0 {
		return T(math.Copysign(0, float64(a/b))), m
	}
	down := T(math.Floor(float64(q)))
	if float64(q-down) > 0.5 {
		down++
	}
	return down, m
}

// intChunk reports whether no division is one by 0 and no exponent below 0; those give 0.
func intChunk[T tensor.Number](c code, dst, one, two []T) bool {
	possible := true
	for i := range dst {
		a, b := one[i], two[i]
		switch {
		case c == power && b >= 0:
			dst[i] = raised(a, b)
		case c == power || b == 0:
			dst[i], possible = 0, false
		default:
			q := a / b
			rest := a - q*b
			if rest != 0 && (rest < 0) != (b < 0) {
				rest += b
				q--
			}
			if dst[i] = q; c == remainder {
				dst[i] = rest
			}
		}
	}
	return possible
}

// raised returns a to the power of b, which is not negative.
func raised[T tensor.Number](a, b T) T {
	result := T(1)
	for n := uint64(b); n > 0; n >>= 1 {
		if n&1 != 0 {
			result *= a
		}
		a *= a
	}
	return result
}

// blame fails the rows of the divisors and exponents that are not possible; they are for
// the elements of the output from the given one on.
func blame[T tensor.Number](p *pair, b *backends.Batch, out *tensor.Tensor, at int, list []T) {
	perRow := int(out.Shape.Elements()) / rowsOf(out, p.batch)
	for i, v := range list {
		if v == 0 && p.code != power || v < 0 && p.code == power {
			row := (at + i) / perRow
			b.Fail(row, status.Errorf(status.InvalidArg, "row %d divides an integer by 0 or raises one to a negative power", row))
		}
	}
}

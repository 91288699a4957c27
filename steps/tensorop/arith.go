package tensorop

import (
	"strconv"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
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

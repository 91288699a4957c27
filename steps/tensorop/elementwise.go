package tensorop

import (
	"bytes"
	"math"
	"slices"

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

// binaryNames is indexed by code.
var binaryNames = [...]string{
	"add", "subtract", "multiply", "divide", "floor_divide", "remainder", "power", "minimum", "maximum",
	"equal", "not_equal", "less", "less_equal", "greater", "greater_equal",
	"logical_and", "logical_or", "logical_xor",
}

// binary is an operation of two operands that are broadcast as numpy does.
type binary struct {
	code  code
	batch int
	// value is the second operand where that is not an input, the first if swap is set.
	value tensor.Tensor
	swap  bool
	// as is the type of the computation, out the type of the output.
	as, out tensor.DType
}

// makeBinary makes arithmetic, a comparison, or an operation of BOOL. Comparisons take
// numbers, BOOL as 0 and 1, and texts by their bytes.
func makeBinary(s *spec) {
	c, d := code(slices.Index(binaryNames[:], s.name)), s.in[0].DType
	p := &binary{code: c, batch: s.batch, as: d, out: d}
	switch {
	case c >= and && d != tensor.Bool:
		s.refuseType(0, "TYPE_BOOL")
	case c < equal && (d == tensor.Bool || d == tensor.Bytes):
		s.refuseType(0, "numbers")
	case isHalf(d):
		p.as = tensor.FP32
	case c == divide && d != tensor.FP32:
		p.as, p.out = tensor.FP64, tensor.FP64
	}
	if c >= equal {
		p.out = tensor.Bool
	}
	s.output(p.out, p.setOperands(s))
	s.run = p
}

// setOperands reads the second operand and returns the dims of the output.
func (p *binary) setOperands(s *spec) tensor.Shape {
	switch {
	case len(s.in) == 2 && s.param("value") != "":
		s.refuse("parameter 'value' is set, but input '%s' is the second operand", s.in[1].Name)
	case len(s.in) == 2:
		s.same(0)
		return s.joined(s.in[0].Dims, s.in[1].Dims)
	case s.param("value") == "":
		s.refuse("there is one operand: declare a second input or set parameter 'value'")
	}
	p.value, p.swap = s.scalar("value", s.in[0].DType), s.flag("swap")
	return s.in[0].Dims
}

// scalar reads parameter key as one element of a type.
func (s *spec) scalar(key string, d tensor.DType) tensor.Tensor {
	return s.constant(d, tensor.Of(), []string{s.param(key)}, "parameter '"+key+"' is %q, expected a number of type %s")
}

func (p *binary) run(b *backends.Batch, x *scratch) error {
	one, two, shape, err := &b.In[0], &p.value, b.In[0].Shape, error(nil)
	switch {
	case !p.value.Present():
		two = &b.In[1]
		shape, err = broadcast(&one.Shape, &two.Shape, p.batch)
	case p.swap:
		one, two = two, one
	}
	if err != nil {
		return err
	}
	out, err := b.Alloc(0, p.out, shape)
	if err != nil {
		return err
	}
	w := &x.loop
	w.start(&shape, 3)
	if w.empty {
		return nil
	}
	for k, t := range [...]*tensor.Tensor{one, two} {
		if t != &p.value { // the value is the same for every row
			w.broadcast(k+1, &t.Shape, p.batch)
		}
	}
	w.fold()
	switch p.as {
	case tensor.Bytes:
		return p.compareTexts(x, out, one, two)
	case one.DType:
		numbers[p.as].binary(p, b, x, out, one, two)
		return nil
	default:
		return p.converted(b, x, out, one, two)
	}
}

// broadcast returns the shape that numpy broadcasts both to. The first batch dimensions of both are the same.
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

// converted computes with another type than that of the operands.
func (p *binary) converted(b *backends.Batch, x *scratch, out, one, two *tensor.Tensor) error {
	one, err := x.converted(b, one, p.as)
	if err != nil {
		return err
	}
	if two, err = x.converted(b, two, p.as); err != nil {
		return err
	}
	result := out
	if p.code < equal && p.as != out.DType {
		if result, err = x.temp(b, p.as, &out.Shape); err != nil {
			return err
		}
	}
	numbers[p.as].binary(p, b, x, result, one, two)
	if result != out {
		_, err = convert(b, x, out, result, wrap)
	}
	return err
}

// compareTexts compares BYTES elements by their bytes.
func (p *binary) compareTexts(x *scratch, out, one, two *tensor.Tensor) error {
	offsets, err := x.offsets(one, two)
	if err != nil {
		return err
	}
	w := &x.loop
	first, second := offsets[:one.Shape.Elements()], offsets[one.Shape.Elements():]
	dst := out.Bytes()
	for more := true; more; more = w.next() {
		for i := range w.inner() {
			order := bytes.Compare(
				elementAt(one.Bytes(), first[w.at[1]+i*w.step(1)]),
				elementAt(two.Bytes(), second[w.at[2]+i*w.step(2)]))
			compareLoop(p.code, dst[w.at[0]+i:][:1], []int8{int8(order)}, []int8{0})
		}
	}
	return nil
}

var unaryNames = []string{"absolute", "negative", "sqrt", "exp", "log", "floor", "ceil", "rint", "logical_not"}

// unary computes a function of each element. FP16 and BF16 are computed as FP32 and rounded.
type unary struct {
	name string
	// low and high are the bounds of clip, not present where there is none. At least one is.
	low, high tensor.Tensor
}

func makeUnary(s *spec) {
	d := s.in[0].DType
	integer := d >= tensor.Int8 && d <= tensor.Int64
	signed := integer || d >= tensor.FP16 && d <= tensor.FP64 || d == tensor.BF16
	either := s.name == "absolute" || s.name == "negative" // these take integers, too
	switch {
	case s.name == "logical_not" && d != tensor.Bool:
		s.refuseType(0, "TYPE_BOOL")
	case either && !signed:
		s.refuseType(0, "signed numbers")
	case s.name != "logical_not" && !either && (!signed || integer):
		s.refuseType(0, "floating-point numbers: cast it before")
	}
	s.output(d, s.in[0].Dims)
	s.run = &unary{name: s.name}
}

func makeClip(s *spec) {
	d := s.in[0].DType
	if d == tensor.Bool || d == tensor.Bytes {
		s.refuseType(0, "numbers")
	}
	if s.param("low") == "" && s.param("high") == "" {
		s.refuse("parameter 'low' or 'high' is needed")
	}
	u := &unary{name: s.name}
	for key, bound := range map[string]*tensor.Tensor{"low": &u.low, "high": &u.high} {
		if s.param(key) == "" {
			continue
		}
		narrow := s.scalar(key, d)
		*bound = narrow
		if isHalf(d) { // the rounded number, as the elements are
			*bound = s.fixed(tensor.FP32, tensor.Of(), 0)
			widen(tensor.Slice[float32](bound), tensor.Slice[uint16](&narrow), d)
		}
	}
	s.output(d, s.in[0].Dims)
	s.run = u
}

func (u *unary) run(b *backends.Batch, x *scratch) error {
	in := &b.In[0]
	out, err := b.Alloc(0, in.DType, in.Shape)
	if err != nil {
		return err
	}
	if !isHalf(in.DType) {
		numbers[in.DType].unary(u, out, in)
		return nil
	}
	wide, err := x.converted(b, in, tensor.FP32)
	if err != nil {
		return err
	}
	numbers[tensor.FP32].unary(u, wide, wide)
	_, err = convert(b, x, out, wide, wrap)
	return err
}

func (number[T]) unary(u *unary, out, in *tensor.Tensor) {
	src := tensor.Slice[T](in)
	dst := tensor.Slice[T](out)[:len(src)]
	switch u.name {
	case "clip":
		clip(u, dst, src)
	case "logical_not":
		for i, v := range src {
			dst[i] = T(truth(v == 0))
		}
	case "negative":
		for i, v := range src {
			dst[i] = -v
		}
	case "absolute":
		if isFloat[T]() {
			for i, v := range src {
				dst[i] = T(math.Abs(float64(v)))
			}
			return
		}
		for i, v := range src {
			dst[i] = max(v, -v)
		}
	case "sqrt":
		for i, v := range src {
			dst[i] = T(math.Sqrt(float64(v)))
		}
	case "exp":
		exponentials(dst, src)
	case "log":
		for i, v := range src {
			dst[i] = T(math.Log(float64(v)))
		}
	case "floor":
		for i, v := range src {
			dst[i] = T(math.Floor(float64(v)))
		}
	case "ceil":
		for i, v := range src {
			dst[i] = T(math.Ceil(float64(v)))
		}
	default:
		for i, v := range src {
			dst[i] = T(math.RoundToEven(float64(v)))
		}
	}
}

// clip limits the elements to the bounds. A NaN stays.
func clip[T tensor.Number](u *unary, dst, src []T) {
	switch {
	case !u.high.Present():
		low := tensor.Slice[T](&u.low)[0]
		for i, v := range src {
			dst[i] = max(v, low)
		}
	case !u.low.Present():
		high := tensor.Slice[T](&u.high)[0]
		for i, v := range src {
			dst[i] = min(v, high)
		}
	default:
		low, high := tensor.Slice[T](&u.low)[0], tensor.Slice[T](&u.high)[0]
		done := clipFast(dst, src, low, high)
		dst, src = dst[done:], src[done:]
		for i, v := range src {
			if v < low {
				v = low
			}
			if v > high {
				v = high
			}
			dst[i] = v
		}
	}
}

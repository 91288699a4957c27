package tensorop

import (
	"math"
	"unsafe"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// overflow says what becomes of numbers that the other type does not have.
type overflow uint8

const (
	wrap overflow = iota
	saturate
	refuse
)

var overflows = map[string]overflow{"": wrap, "wrap": wrap, "saturate": saturate, "refuse": refuse}

// caster is the operation cast.
type caster struct {
	batch int
	to    tensor.DType
	mode  overflow
}

func makeCast(s *spec) error {
	to, err := s.dtype("dtype", tensor.Invalid)
	if err != nil {
		return err
	}
	mode, ok := overflows[s.param("overflow")]
	if !ok {
		return s.errorf("parameter 'overflow' is '%s', expected one of wrap, saturate, refuse", s.param("overflow"))
	}
	s.output(to, s.in[0].Dims)
	s.run = &caster{s.batch, to, mode}
	return nil
}

func (c *caster) run(b *backends.Batch, x *scratch) error {
	in := &b.In[0]
	switch {
	case in.DType == c.to:
		b.SetOutput(0, in.Retain())
		return nil
	case in.DType == tensor.Bytes:
		return c.parse(b)
	case c.to == tensor.Bytes:
		return c.format(b, x)
	}
	out, err := b.Alloc(0, c.to, in.Shape)
	if err != nil {
		return err
	}
	whole, err := convert(b, out, in, c.mode)
	if whole || err != nil {
		return err
	}
	return c.blame(b, out, in)
}

// blame fails the rows whose numbers do not fit, after their conversion has said that
// there are some.
func (c *caster) blame(b *backends.Batch, out, in *tensor.Tensor) error {
	rows := rowsOf(in, c.batch)
	for row := range rows {
		from, to := part(in, row, rows), part(out, row, rows)
		whole, err := convert(b, &to, &from, c.mode)
		if err != nil {
			return err
		}
		if !whole {
			b.Fail(row, status.Errorf(status.InvalidArg, "row %d has a number that %s does not have", row, c.to))
		}
	}
	return nil
}

// part returns one of the rows, borrowed, as a list.
func part(t *tensor.Tensor, row, rows int) tensor.Tensor {
	p := *t
	p.Len = t.Len / rows
	p.Off += row * p.Len
	p.Shape = tensor.Of(int64(p.Len / t.DType.Size()))
	return p
}

// rowsOf returns the rows of a batch, 1 where there is none.
func rowsOf(t *tensor.Tensor, batch int) int {
	if batch == 0 {
		return 1
	}
	return int(t.Shape.Dim(0))
}

// convert writes the elements of in as those of out, and reports whether all fit.
func convert(b *backends.Batch, out, in *tensor.Tensor, mode overflow) (bool, error) {
	switch {
	case isHalf(in.DType):
		wide, err := temporary(b, tensor.FP32, &in.Shape)
		if err != nil {
			return false, err
		}
		defer wide.Release()
		widen(tensor.Slice[float32](&wide), tensor.Slice[uint16](in), in.DType)
		return convert(b, out, &wide, mode)
	case isHalf(out.DType) && in.DType == tensor.FP32:
		shorten(tensor.Slice[uint16](out), tensor.Slice[float32](in), out.DType)
		return true, nil
	case isHalf(out.DType):
		wide, err := temporary(b, tensor.FP32, &in.Shape)
		if err != nil {
			return false, err
		}
		defer wide.Release()
		if in.DType == tensor.FP64 {
			f32 := tensor.Slice[float32](&wide)
			for i, f := range tensor.Slice[float64](in) {
				f32[i] = narrowed(f)
			}
		} else {
			castFrom(&wide, in, mode)
		}
		shorten(tensor.Slice[uint16](out), tensor.Slice[float32](&wide), out.DType)
		return true, nil
	default:
		return castFrom(out, in, mode), nil
	}
}

func castFrom(out, in *tensor.Tensor, mode overflow) bool {
	switch in.DType {
	case tensor.Bool:
		return castBool(out, in)
	case tensor.Int8:
		return castTo[int8](out, in, mode)
	case tensor.Int16:
		return castTo[int16](out, in, mode)
	case tensor.Int32:
		return castTo[int32](out, in, mode)
	case tensor.Int64:
		return castTo[int64](out, in, mode)
	case tensor.Uint8:
		return castTo[uint8](out, in, mode)
	case tensor.Uint16:
		return castTo[uint16](out, in, mode)
	case tensor.Uint32:
		return castTo[uint32](out, in, mode)
	case tensor.Uint64:
		return castTo[uint64](out, in, mode)
	case tensor.FP32:
		return castTo[float32](out, in, mode)
	default:
		return castTo[float64](out, in, mode)
	}
}

func castTo[S tensor.Number](out, in *tensor.Tensor, mode overflow) bool {
	src := tensor.Slice[S](in)
	switch out.DType {
	case tensor.Bool:
		dst := out.Bytes()
		for i, v := range src {
			dst[i] = truth(v != 0)
		}
		return true
	case tensor.Int8:
		return cast(tensor.Slice[int8](out), src, mode)
	case tensor.Int16:
		return cast(tensor.Slice[int16](out), src, mode)
	case tensor.Int32:
		return cast(tensor.Slice[int32](out), src, mode)
	case tensor.Int64:
		return cast(tensor.Slice[int64](out), src, mode)
	case tensor.Uint8:
		return cast(tensor.Slice[uint8](out), src, mode)
	case tensor.Uint16:
		return cast(tensor.Slice[uint16](out), src, mode)
	case tensor.Uint32:
		return cast(tensor.Slice[uint32](out), src, mode)
	case tensor.Uint64:
		return cast(tensor.Slice[uint64](out), src, mode)
	case tensor.FP32:
		return cast(tensor.Slice[float32](out), src, mode)
	default:
		return cast(tensor.Slice[float64](out), src, mode)
	}
}

// castBool makes 0 or 1 of bytes that may be any.
func castBool(out, in *tensor.Tensor) bool {
	if out.DType.Size() == 1 {
		dst := out.Bytes()
		for i, v := range in.Bytes() {
			dst[i] = truth(v != 0)
		}
		return true
	}
	castTo[uint8](out, in, wrap)
	return true
}

func truth(yes bool) byte {
	if yes {
		return 1
	}
	return 0
}

// isFloat tells the floating-point types.
func isFloat[T tensor.Number]() bool {
	one := T(1)
	return one/2 != 0
}

// limits returns the least and the greatest number of an integer type.
func limits[T tensor.Number]() (low, high T) {
	var zero T
	bits := 8 * int(unsafe.Sizeof(zero))
	if zero-1 > 0 { // unsigned
		return 0, zero - 1
	}
	one := uint64(1)
	n := int64(one<<(bits-1) - 1)
	return T(-n - 1), T(n)
}

// cast converts every element and reports whether all of them fit.
func cast[D, S tensor.Number](dst []D, src []S, mode overflow) bool {
	dst = dst[:len(src)]
	done := castVector(dst, src)
	dst, src = dst[done:], src[done:]
	switch {
	case isFloat[S]() && !isFloat[D]():
		return truncate(dst, src, mode)
	case mode == wrap || isFloat[D]():
		for i, v := range src {
			dst[i] = D(v)
		}
		return true
	default:
		return fit(dst, src, mode)
	}
}

// fit converts integers; those that do not fit become the nearest that does.
func fit[D, S tensor.Number](dst []D, src []S, mode overflow) bool {
	low, high := limits[D]()
	whole := true
	for i, v := range src {
		d := D(v)
		switch {
		case S(d) == v && (d < 0) == (v < 0):
		case v < 0:
			d, whole = low, false
		default:
			d, whole = high, false
		}
		dst[i] = d
	}
	return whole || mode == saturate
}

// truncate converts floating-point numbers to integers towards zero. One outside of the
// type is refused or becomes the nearest, and what is no number 0.
func truncate[D, S tensor.Number](dst []D, src []S, mode overflow) bool {
	low, high := limits[D]()
	// What truncates to low is above below, and what truncates to high is less than above.
	below, above := float64(low)-1, math.Ldexp(1, bitsOf(high))
	if below == float64(low) {
		below = math.Nextafter(below, math.Inf(-1))
	}
	whole := true
	for i, v := range src {
		f := float64(v)
		if f > below && f < above {
			dst[i] = D(v)
			continue
		}
		whole = false
		switch {
		case f >= above:
			dst[i] = high
		case f <= below:
			dst[i] = low
		default:
			dst[i] = 0
		}
	}
	return whole || mode == saturate
}

// bitsOf returns how many bits a type's greatest number has.
func bitsOf[T tensor.Number](high T) int {
	n := 0
	for v := uint64(high); v != 0; v >>= 1 {
		n++
	}
	return n
}

package tensorop

import (
	"math"
	"slices"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
)

var unaryNames = []string{"absolute", "negative", "sqrt", "exp", "log", "floor", "ceil", "rint", "logical_not"}

// signedTypes are those that absolute and negative accept.
var signedTypes = []tensor.DType{
	tensor.Int8, tensor.Int16, tensor.Int32, tensor.Int64, tensor.FP16, tensor.BF16, tensor.FP32, tensor.FP64,
}

// unary computes a function of each element. FP16 and BF16 are computed as FP32 and rounded.
type unary struct {
	name string
	// low and high are the bounds of clip, not present where there is none. At least one is.
	low, high tensor.Tensor
}

func makeUnary(s *spec) {
	d := s.in[0].DType
	signed := slices.Contains(signedTypes, d)
	switch {
	case s.name == "logical_not":
		if d != tensor.Bool {
			s.refuseType(0, "TYPE_BOOL")
		}
	case s.name == "absolute" || s.name == "negative":
		if !signed {
			s.refuseType(0, "signed numbers")
		}
	case !signed || d >= tensor.Int8 && d <= tensor.Int64:
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
	default:
		applyFloat(u.name, dst, src)
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

func applyFloat[T tensor.Number](name string, dst, src []T) {
	switch name {
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

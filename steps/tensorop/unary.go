package tensorop

import (
	"math"
	"slices"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
)

var unaryNames = []string{"absolute", "negative", "sqrt", "exp", "log", "floor", "ceil", "rint", "logical_not"}

// unary computes each element of one operand. FP16 and BF16 are computed as float32.
type unary struct {
	name string
	as   tensor.DType
	// low and high are the bounds of clip, absent where there is none.
	low, high tensor.Tensor
}

func makeUnary(s *spec) error {
	d := s.in[0].DType
	float := isHalf(d) || d == tensor.FP32 || d == tensor.FP64
	signed := float || slices.Contains([]tensor.DType{tensor.Int8, tensor.Int16, tensor.Int32, tensor.Int64}, d)
	u := &unary{name: s.name, as: d}
	if isHalf(d) {
		u.as = tensor.FP32
	}
	switch s.name {
	case "logical_not":
		if d != tensor.Bool {
			return s.errorf("input '%s' is %s, expected TYPE_BOOL", s.in[0].Name, d.ConfigName())
		}
	case "absolute", "negative":
		if !signed {
			return s.errorf("input '%s' is %s, expected signed numbers", s.in[0].Name, d.ConfigName())
		}
	default:
		if !float {
			return s.errorf("input '%s' is %s, expected floating-point numbers: cast it before", s.in[0].Name, d.ConfigName())
		}
	}
	s.output(d, s.in[0].Dims)
	s.run = u
	return nil
}

func makeClip(s *spec) error {
	d := s.in[0].DType
	if d == tensor.Bool || d == tensor.Bytes {
		return s.errorf("input '%s' is %s, expected numbers", s.in[0].Name, d.ConfigName())
	}
	u := &unary{name: s.name, as: d}
	if isHalf(d) {
		u.as = tensor.FP32
	}
	if s.param("low") == "" && s.param("high") == "" {
		return s.errorf("parameter 'low' or 'high' is needed")
	}
	for key, bound := range map[string]*tensor.Tensor{"low": &u.low, "high": &u.high} {
		if s.param(key) == "" {
			continue
		}
		var err error
		if *bound, err = s.scalar(key, d); err != nil {
			return err
		}
		if isHalf(d) { // the rounded number
			half := tensor.Slice[uint16](bound)
			wide, err := fixed(tensor.FP32, tensor.Of(), 0)
			if err != nil {
				return err
			}
			widen(tensor.Slice[float32](&wide), half, d)
			*bound = wide
		}
	}
	s.output(d, s.in[0].Dims)
	s.run = u
	return nil
}

func (u *unary) run(b *backends.Batch, _ *scratch) error {
	in := &b.In[0]
	out, err := b.Alloc(0, in.DType, in.Shape)
	if err != nil {
		return err
	}
	if !isHalf(in.DType) {
		u.compute(out, in)
		return nil
	}
	wide, err := widenedOf(b, in, tensor.FP32)
	if err != nil {
		return err
	}
	defer wide.Release()
	u.compute(&wide, &wide)
	_, err = convert(b, out, &wide, wrap)
	return err
}

func (u *unary) compute(out, in *tensor.Tensor) {
	switch u.as {
	case tensor.Bool:
		dst := out.Bytes()
		for i, v := range in.Bytes() {
			dst[i] = truth(v == 0)
		}
	case tensor.Int8:
		apply[int8](u, out, in)
	case tensor.Int16:
		apply[int16](u, out, in)
	case tensor.Int32:
		apply[int32](u, out, in)
	case tensor.Int64:
		apply[int64](u, out, in)
	case tensor.Uint8:
		apply[uint8](u, out, in)
	case tensor.Uint16:
		apply[uint16](u, out, in)
	case tensor.Uint32:
		apply[uint32](u, out, in)
	case tensor.Uint64:
		apply[uint64](u, out, in)
	case tensor.FP32:
		apply[float32](u, out, in)
	default:
		apply[float64](u, out, in)
	}
}

func apply[T tensor.Number](u *unary, out, in *tensor.Tensor) {
	src := tensor.Slice[T](in)
	dst := tensor.Slice[T](out)[:len(src)]
	switch u.name {
	case "clip":
		clip(u, dst, src)
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
		done := clipped(dst, src, low, high)
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

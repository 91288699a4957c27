package httpapi

import (
	"math"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// values visits a scalar, or the values in nested arrays.
type values struct {
	walk
	scalar bool
}

// next stops at the next value; false after the last.
func (v *values) next() (bool, error) {
	switch {
	case v.scalar:
		return false, nil
	case !v.begun && v.p.peek() != '[':
		v.scalar = true
		return true, nil
	default:
		return v.walk.next()
	}
}

// fill reads the values that in's tensor was made for. Unlike the numbers of an
// infer request, one that the type cannot hold is refused.
func (v *values) fill(in *spec) error {
	t := &in.tensor
	switch in.dtype {
	case tensor.Bytes:
		return v.strings(t.Bytes()[:0])
	case tensor.Bool:
		return v.flags(t.Bytes())
	case tensor.Uint8:
		return unsignedValues(v, in, tensor.Slice[uint8](t))
	case tensor.Uint16:
		return unsignedValues(v, in, tensor.Slice[uint16](t))
	case tensor.Uint32:
		return unsignedValues(v, in, tensor.Slice[uint32](t))
	case tensor.Uint64:
		return unsignedValues(v, in, tensor.Slice[uint64](t))
	case tensor.Int8:
		return signedValues(v, in, tensor.Slice[int8](t))
	case tensor.Int16:
		return signedValues(v, in, tensor.Slice[int16](t))
	case tensor.Int32:
		return signedValues(v, in, tensor.Slice[int32](t))
	case tensor.Int64:
		return signedValues(v, in, tensor.Slice[int64](t))
	case tensor.FP32:
		return floatValues(v, in, tensor.Slice[float32](t))
	default:
		return floatValues(v, in, tensor.Slice[float64](t))
	}
}

// each calls read at each of n values, which have been counted, and goes on behind them.
func (v *values) each(n int, read func(i int) error) error {
	for i := range n {
		if _, err := v.next(); err != nil {
			return err
		}
		if err := read(i); err != nil {
			return err
		}
	}
	_, err := v.next()
	return err
}

func (v *values) strings(dst []byte) error {
	for {
		ok, err := v.next()
		if !ok || err != nil {
			return err
		}
		s, err := v.p.str()
		if err != nil {
			return err
		}
		dst = tensor.AppendBytes(dst, s)
	}
}

func (v *values) flags(dst []byte) error {
	return v.each(len(dst), func(i int) error {
		word := "false"
		dst[i] = 0
		switch v.p.peek() {
		case 't':
			word, dst[i] = "true", 1
		case 'f':
		default:
			return unable("data", notBoolean)
		}
		return v.p.literal(word)
	})
}

func signedValues[T int8 | int16 | int32 | int64](v *values, in *spec, dst []T) error {
	return v.each(len(dst), func(i int) error {
		n, err := v.numeric(notSigned)
		if err != nil {
			return err
		}
		s, ok := n.signed()
		if !ok {
			return unable("data", notSigned)
		}
		dst[i] = T(s)
		if int64(dst[i]) != s {
			return outOfType(in, &n)
		}
		return nil
	})
}

func unsignedValues[T uint8 | uint16 | uint32 | uint64](v *values, in *spec, dst []T) error {
	return v.each(len(dst), func(i int) error {
		n, err := v.numeric(notUnsigned)
		if err != nil {
			return err
		}
		u, ok := n.unsigned()
		if !ok {
			return unable("data", notUnsigned)
		}
		dst[i] = T(u)
		if uint64(dst[i]) != u {
			return outOfType(in, &n)
		}
		return nil
	})
}

func floatValues[T float32 | float64](v *values, in *spec, dst []T) error {
	return v.each(len(dst), func(i int) error {
		n, err := v.numeric(notNumber)
		if err != nil {
			return err
		}
		f := n.float()
		dst[i] = T(f)
		if math.IsInf(float64(dst[i]), 0) && !math.IsInf(f, 0) {
			return outOfType(in, &n)
		}
		return nil
	})
}

func outOfType(in *spec, n *number) error {
	return status.Errorf(status.InvalidArg, "value %s of input '%s' is out of range for %s", n.lit, in.name, in.dtype)
}

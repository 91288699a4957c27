package tensorjson

import (
	"math"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/server/httpapi/jsonwire"
)

const wrongShape = "Shape does not match true shape of 'data' field"

// WrongShape returns Triton's error for JSON data that does not fill its tensor.
func WrongShape() error { return jsonwire.Unable("data", wrongShape) }

// Readable returns Triton's error for a type that has no JSON form.
func Readable(name string, d tensor.DType) error {
	if d == tensor.FP16 || d == tensor.BF16 {
		return status.Errorf(status.InvalidArg,
			"receiving %s data via JSON is not supported. Please use the binary data format for input %s", d, name)
	}
	return nil
}

// Measure reads the value at the cursor, a scalar or nested arrays, and returns the number of its elements and their size in a
// tensor. The caller allocates the tensor, resets the Parser and calls Fill.
func Measure(p *jsonwire.Parser, d tensor.DType) (n, size int64, err error) {
	w := jsonwire.Walk{P: p}
	for {
		ok, err := w.Next()
		if !ok || err != nil {
			return n, size, err
		}
		n++
		if d != tensor.Bytes {
			size += int64(d.Size())
			err = p.Skip()
		} else {
			var s []byte
			s, err = stringElement(p)
			size += int64(tensor.EncodedLen(len(s)))
		}
		if err != nil {
			return n, size, err
		}
	}
}

func stringElement(p *jsonwire.Parser) ([]byte, error) {
	if p.Peek() != '"' {
		return nil, status.Errorf(status.Internal, "Unable to parse JSON bytes array: %s", jsonwire.NotString)
	}
	return p.Str()
}

// Fill reads the value at the cursor into t, which must have exactly as many elements (for BYTES, as many bytes) as the value.
// An integer that t's type cannot hold keeps its low bits, as in an inference request of Triton; with exact it is an error
// that names the input, as in a generate request.
func Fill(p *jsonwire.Parser, t *tensor.Tensor, name string, exact bool) error {
	r := reader{Walk: jsonwire.Walk{P: p}, t: t, name: name, exact: exact}
	switch t.DType {
	case tensor.Bytes:
		return r.strings(t.Bytes()[:0])
	case tensor.Bool:
		return r.bools(t.Bytes())
	case tensor.Uint8:
		return readUnsigned(&r, tensor.Slice[uint8](t))
	case tensor.Uint16:
		return readUnsigned(&r, tensor.Slice[uint16](t))
	case tensor.Uint32:
		return readUnsigned(&r, tensor.Slice[uint32](t))
	case tensor.Uint64:
		return readUnsigned(&r, tensor.Slice[uint64](t))
	case tensor.Int8:
		return readSigned(&r, tensor.Slice[int8](t))
	case tensor.Int16:
		return readSigned(&r, tensor.Slice[int16](t))
	case tensor.Int32:
		return readSigned(&r, tensor.Slice[int32](t))
	case tensor.Int64:
		return readSigned(&r, tensor.Slice[int64](t))
	case tensor.FP32:
		return readFloats(&r, tensor.Slice[float32](t))
	default:
		return readFloats(&r, tensor.Slice[float64](t))
	}
}

// reader fills one tensor.
type reader struct {
	jsonwire.Walk
	t     *tensor.Tensor
	name  string
	exact bool
}

// element moves to element i of n. With i == n it verifies that there is none.
func (r *reader) element(i, n int) error {
	ok, err := r.Next()
	if err == nil && ok != (i < n) {
		return WrongShape()
	}
	return err
}

// number reads a number. wrong is the error text for any other value.
func (r *reader) number(wrong string) (jsonwire.Number, error) {
	switch c := r.P.Peek(); {
	case '0' <= c && c <= '9', c == '-', c == 'N', c == 'I':
		return r.P.Number()
	default:
		return jsonwire.Number{}, jsonwire.Unable("data", wrong)
	}
}

// outOfRange returns the error of a number that the tensor's type cannot hold.
func (r *reader) outOfRange(n string) error {
	return status.Errorf(status.InvalidArg, "value %s of input '%s' is out of range for %s", n, r.name, r.t.DType)
}

func (r *reader) strings(dst []byte) error {
	for {
		ok, err := r.Next()
		if !ok || err != nil {
			return err
		}
		s, err := r.P.Str()
		if err != nil {
			return err
		}
		dst = tensor.AppendBytes(dst, s)
	}
}

func (r *reader) bools(dst []byte) error {
	for i := range dst {
		if err := r.element(i, len(dst)); err != nil {
			return err
		}
		v, err := r.P.Bool("data")
		if err != nil {
			return err
		}
		dst[i] = 0
		if v {
			dst[i] = 1
		}
	}
	return r.element(len(dst), len(dst))
}

func readSigned[T int8 | int16 | int32 | int64](r *reader, dst []T) error {
	for i := range dst {
		if err := r.element(i, len(dst)); err != nil {
			return err
		}
		n, err := r.number(jsonwire.NotSigned)
		if err != nil {
			return err
		}
		v, ok := n.Signed()
		if !ok {
			return jsonwire.Unable("data", jsonwire.NotSigned)
		}
		if dst[i] = T(v); r.exact && int64(dst[i]) != v {
			return r.outOfRange(n.String())
		}
	}
	return r.element(len(dst), len(dst))
}

func readUnsigned[T uint8 | uint16 | uint32 | uint64](r *reader, dst []T) error {
	for i := range dst {
		if err := r.element(i, len(dst)); err != nil {
			return err
		}
		n, err := r.number(jsonwire.NotUnsigned)
		if err != nil {
			return err
		}
		v, ok := n.Unsigned()
		if !ok {
			return jsonwire.Unable("data", jsonwire.NotUnsigned)
		}
		if dst[i] = T(v); r.exact && uint64(dst[i]) != v {
			return r.outOfRange(n.String())
		}
	}
	return r.element(len(dst), len(dst))
}

func readFloats[T float32 | float64](r *reader, dst []T) error {
	for i := range dst {
		if err := r.element(i, len(dst)); err != nil {
			return err
		}
		n, err := r.number(jsonwire.NotNumber)
		if err != nil {
			return err
		}
		f := n.Float()
		if dst[i] = T(f); r.exact && math.IsInf(float64(dst[i]), 0) && !math.IsInf(f, 0) {
			return r.outOfRange(n.String())
		}
	}
	return r.element(len(dst), len(dst))
}

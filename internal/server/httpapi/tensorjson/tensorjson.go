// Package tensorjson reads the elements of a tensor from JSON into tensor memory and prints them from there, without a value
// in between. For example, [[1,2],[3,4]] and [1,2,3,4] fill an INT32 tensor of shape [2,2], which is printed as 1,2,3,4.
package tensorjson

import (
	"math"
	"strconv"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/jsontext"
	"github.com/tutti-server/tutti/internal/server/httpapi/jsonwire"
)

// codecs has the printer and the reader of each type of fixed size that has a JSON form.
var codecs = [tensor.BF16 + 1]struct {
	print func(b []byte, t *tensor.Tensor) []byte
	read  func(r reader) error
}{
	tensor.Bool:   {appendBools, readBools},
	tensor.Uint8:  {appendNumbers[uint8], readNumbers[uint8]},
	tensor.Uint16: {appendNumbers[uint16], readNumbers[uint16]},
	tensor.Uint32: {appendNumbers[uint32], readNumbers[uint32]},
	tensor.Uint64: {appendNumbers[uint64], readNumbers[uint64]},
	tensor.Int8:   {appendNumbers[int8], readNumbers[int8]},
	tensor.Int16:  {appendNumbers[int16], readNumbers[int16]},
	tensor.Int32:  {appendNumbers[int32], readNumbers[int32]},
	tensor.Int64:  {appendNumbers[int64], readNumbers[int64]},
	tensor.FP32:   {appendNumbers[float32], readNumbers[float32]},
	tensor.FP64:   {appendNumbers[float64], readNumbers[float64]},
}

func wrongSize(out *infer.Named) error {
	return status.Errorf(status.Internal, "output tensor shape does not match size of output for '%s'", out.Name)
}

// AppendData appends an output's elements as JSON, row-major, flat and separated by commas.
func AppendData(b []byte, out *infer.Named) ([]byte, error) {
	t := &out.Tensor
	n := t.Shape.Elements()
	if t.DType == tensor.Bytes {
		return appendStrings(b, out, n)
	}
	if size := int64(t.DType.Size()); n < 0 || int64(t.Len)%max(size, 1) != 0 || int64(t.Len)/max(size, 1) != n {
		return b, wrongSize(out)
	}
	if c := codecs[t.DType]; c.print != nil {
		return c.print(b, t), nil
	}
	return b, status.Errorf(status.InvalidArg,
		"sending %s data via JSON is not supported. Please use the binary data format for output %s", t.DType, out.Name)
}

func appendBools(b []byte, t *tensor.Tensor) []byte {
	for i, v := range t.Bytes() {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendBool(b, v != 0)
	}
	return b
}

// number is an element type that JSON has as a number. In generic code T(1)/2 is not 0 for floating-point types only, and
// T(0)-1 is negative for signed ones only; the compiler knows both.
type number interface {
	uint8 | uint16 | uint32 | uint64 | int8 | int16 | int32 | int64 | float32 | float64
}

// appendNumbers prints an FP32 as a double, as Triton does: 0.1 is 0.10000000149011612.
func appendNumbers[T number](b []byte, t *tensor.Tensor) []byte {
	zero, one := T(0), T(1)
	for i, v := range tensor.Slice[T](t) {
		if i > 0 {
			b = append(b, ',')
		}
		switch {
		case one/2 != 0:
			b = jsonwire.AppendFloat(b, float64(v))
		case zero-1 < 0:
			b = strconv.AppendInt(b, int64(v), 10)
		default:
			b = strconv.AppendUint(b, uint64(v), 10)
		}
	}
	return b
}

func appendStrings(b []byte, out *infer.Named, n int64) ([]byte, error) {
	rest := out.Tensor.Bytes()
	for i := range n {
		elem, next, ok := tensor.NextBytes(rest)
		if !ok {
			return b, wrongSize(out)
		}
		if i > 0 {
			b = append(b, ',')
		}
		b, rest = jsontext.Append(b, elem), next
	}
	return b, nil
}

// WrongShape returns Triton's error for JSON data that does not fill its tensor.
func WrongShape() error {
	return jsonwire.Unable("data", "Shape does not match true shape of 'data' field")
}

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
		switch {
		case d != tensor.Bytes:
			size += int64(d.Size())
			err = p.Skip()
		case p.Peek() != '"':
			err = status.Errorf(status.Internal, "Unable to parse JSON bytes array: %s", jsonwire.NotString)
		default:
			var s []byte
			s, err = p.Str()
			size += int64(tensor.EncodedLen(len(s)))
		}
		if err != nil {
			return n, size, err
		}
	}
}

// Fill reads the value at the cursor into t, which must have exactly as many elements (for BYTES, as many bytes) as the value.
// An integer that t's type cannot hold keeps its low bits, as in an inference request of Triton; with exact it is an error
// that names the input, as in a generate request.
func Fill(p *jsonwire.Parser, t *tensor.Tensor, name string, exact bool) error {
	r := reader{Walk: jsonwire.Walk{P: p}, t: t, name: name, exact: exact}
	if t.DType == tensor.Bytes {
		return r.strings(t.Bytes()[:0])
	}
	return codecs[t.DType].read(r)
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

func readBools(r reader) error {
	dst := r.t.Bytes()
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

func readNumbers[T number](r reader) error {
	zero, one, wrong := T(0), T(1), jsonwire.NotUnsigned
	switch {
	case one/2 != 0:
		wrong = jsonwire.NotNumber
	case zero-1 < 0:
		wrong = jsonwire.NotSigned
	}
	dst := tensor.Slice[T](r.t)
	for i := range dst {
		if err := r.element(i, len(dst)); err != nil {
			return err
		}
		n, err := r.number(wrong)
		if err != nil {
			return err
		}
		var ok, fits bool
		switch {
		case one/2 != 0:
			f := n.Float()
			dst[i] = T(f)
			ok, fits = true, !r.exact || !math.IsInf(float64(dst[i]), 0) || math.IsInf(f, 0)
		case zero-1 < 0:
			var v int64
			v, ok = n.Signed()
			dst[i] = T(v)
			fits = int64(dst[i]) == v
		default:
			var v uint64
			v, ok = n.Unsigned()
			dst[i] = T(v)
			fits = uint64(dst[i]) == v
		}
		switch {
		case !ok:
			return jsonwire.Unable("data", wrong)
		case r.exact && !fits:
			return status.Errorf(status.InvalidArg, "value %s of input '%s' is out of range for %s", n.String(), r.name, r.t.DType)
		}
	}
	return r.element(len(dst), len(dst))
}

// AppendFloats appends numbers, separated by commas, with the fewest digits that identify each as an FP32: 0.1 is 0.1, which AppendData prints
// as Triton does. The numbers must be finite.
//
// hot: no allocation once b has room.
func AppendFloats(b []byte, v []float32) []byte {
	for i, f := range v {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendFloat(b, float64(f), 'g', -1, 32)
	}
	return b
}

package plan

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/tutti-server/tutti/core/tensor"
)

// constant reads one row of a tensor from JSON. A single value fills the whole row; lists give every element, nested as the dims are.
//
// For example, for FP32 [2], 0.5 is the row 0.5, 0.5, and [1, 2] is the row 1, 2.
func constant(text json.RawMessage, d tensor.DType, dims tensor.Shape) (Constant, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return Constant{}, fmt.Errorf("the value %s: %w", text, err)
	}
	values, shape := []any{value}, dims
	if _, list := value.([]any); list {
		var extents []int64
		if values, extents = flatten(value, nil, 0, nil); extents == nil {
			return Constant{}, fmt.Errorf("the value %s, whose lists differ in length", text)
		}
		if shape = tensor.Of(extents...); !shape.Matches(dims) {
			return Constant{}, fmt.Errorf("the value %s of shape %s, expected %s", text, shape, dims)
		}
	}
	n := shape.Elements()
	if n < 0 {
		return Constant{}, fmt.Errorf("the value %s, expected a list: its dims %s are variable", text, dims)
	}
	const most = 1 << 20
	if n > most {
		return Constant{}, fmt.Errorf("the value %s for %d elements, expected at most %d", text, n, most)
	}
	out := Constant{Data: []byte{}, Shape: shape}
	for i := range int(n) {
		v := values[min(i, len(values)-1)]
		var err error
		if out.Data, err = appendValue(out.Data, v, d); err != nil {
			return Constant{}, err
		}
	}
	return out, nil
}

// maxNesting bounds how deep the lists of a value nest.
const maxNesting = 16

// flatten appends the values of nested lists to dst, and notes the lengths at each depth in extents; it returns no extents when they differ.
func flatten(value any, dst []any, depth int, extents []int64) ([]any, []int64) {
	list, ok := value.([]any)
	if !ok {
		if depth != len(extents) {
			return nil, nil
		}
		return append(dst, value), extents
	}
	switch {
	case depth == len(extents):
		if len(dst) > 0 || depth >= maxNesting {
			return nil, nil // an earlier value was not nested so deep
		}
		extents = append(extents, int64(len(list)))
	case extents[depth] != int64(len(list)):
		return nil, nil
	}
	for _, v := range list {
		if dst, extents = flatten(v, dst, depth+1, extents); extents == nil {
			return nil, nil
		}
	}
	return dst, extents
}

// appendValue appends one element.
func appendValue(dst []byte, v any, d tensor.DType) ([]byte, error) {
	wrong := func(want string) error { return fmt.Errorf("the value %s, expected %s", describe(v), want) }
	switch d {
	case tensor.Bytes:
		s, ok := v.(string)
		if !ok {
			return nil, wrong("a string")
		}
		return tensor.AppendBytes(dst, s), nil
	case tensor.Bool:
		b, ok := v.(bool)
		if !ok {
			return nil, wrong("true or false")
		}
		if b {
			return append(dst, 1), nil
		}
		return append(dst, 0), nil
	case tensor.FP16, tensor.BF16, tensor.FP32, tensor.FP64:
		return appendFloat(dst, v, d, wrong)
	default:
		return appendInteger(dst, v, d, wrong)
	}
}

func appendFloat(dst []byte, v any, d tensor.DType, wrong func(string) error) ([]byte, error) {
	number, ok := v.(json.Number)
	if !ok {
		return nil, wrong("a number")
	}
	f, err := number.Float64()
	if err != nil {
		return nil, wrong("a number within the range of FP64")
	}
	switch d {
	case tensor.FP16:
		return binary.LittleEndian.AppendUint16(dst, tensor.Float32ToFP16(float32(f))), nil
	case tensor.BF16:
		return binary.LittleEndian.AppendUint16(dst, tensor.Float32ToBF16(float32(f))), nil
	case tensor.FP32:
		return binary.LittleEndian.AppendUint32(dst, math.Float32bits(float32(f))), nil
	default:
		return binary.LittleEndian.AppendUint64(dst, math.Float64bits(f)), nil
	}
}

func appendInteger(dst []byte, v any, d tensor.DType, wrong func(string) error) ([]byte, error) {
	number, ok := v.(json.Number)
	if !ok {
		return nil, wrong("an integer")
	}
	bits := d.Size() * 8
	var value uint64
	var err error
	if slices.Contains([]tensor.DType{tensor.Uint8, tensor.Uint16, tensor.Uint32, tensor.Uint64}, d) {
		value, err = strconv.ParseUint(number.String(), 10, bits)
	} else {
		var signed int64
		signed, err = strconv.ParseInt(number.String(), 10, bits)
		value = uint64(signed) //nolint:gosec // the low bytes are the two's complement
	}
	if err != nil {
		return nil, wrong("an integer within the range of " + d.String())
	}
	return append(dst, binary.LittleEndian.AppendUint64(nil, value)[:d.Size()]...), nil
}

// describe is a JSON value in an error text.
func describe(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(text)
}

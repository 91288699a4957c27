package tensorjson

import (
	"strconv"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/jsontext"
	"github.com/tutti-server/tutti/internal/server/httpapi/jsonwire"
)

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
	switch t.DType {
	case tensor.Bool:
		return appendBools(b, t.Bytes()), nil
	case tensor.Uint8:
		return appendUnsigned(b, tensor.Slice[uint8](t)), nil
	case tensor.Uint16:
		return appendUnsigned(b, tensor.Slice[uint16](t)), nil
	case tensor.Uint32:
		return appendUnsigned(b, tensor.Slice[uint32](t)), nil
	case tensor.Uint64:
		return appendUnsigned(b, tensor.Slice[uint64](t)), nil
	case tensor.Int8:
		return appendSigned(b, tensor.Slice[int8](t)), nil
	case tensor.Int16:
		return appendSigned(b, tensor.Slice[int16](t)), nil
	case tensor.Int32:
		return appendSigned(b, tensor.Slice[int32](t)), nil
	case tensor.Int64:
		return appendSigned(b, tensor.Slice[int64](t)), nil
	case tensor.FP32:
		return appendFloats(b, tensor.Slice[float32](t)), nil
	case tensor.FP64:
		return appendFloats(b, tensor.Slice[float64](t)), nil
	}
	return b, status.Errorf(status.InvalidArg,
		"sending %s data via JSON is not supported. Please use the binary data format for output %s", t.DType, out.Name)
}

func appendBools(b, list []byte) []byte {
	for i, v := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendBool(b, v != 0)
	}
	return b
}

func appendUnsigned[T uint8 | uint16 | uint32 | uint64](b []byte, list []T) []byte {
	for i, v := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, uint64(v), 10)
	}
	return b
}

func appendSigned[T int8 | int16 | int32 | int64](b []byte, list []T) []byte {
	for i, v := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(v), 10)
	}
	return b
}

// appendFloats prints an FP32 as a double, as Triton does: 0.1 is 0.10000000149011612.
func appendFloats[T float32 | float64](b []byte, list []T) []byte {
	for i, v := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = jsonwire.AppendFloat(b, float64(v))
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

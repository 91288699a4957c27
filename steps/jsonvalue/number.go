package jsonvalue

import (
	"encoding/binary"
	"math"
	"strconv"

	"github.com/tidwall/gjson"

	"github.com/tutti-server/tutti/core/tensor"
)

// element appends one value in the field's type.
func (f *field) element(dst []byte, v gjson.Result) ([]byte, error) {
	switch f.dtype {
	case tensor.Bytes:
		if v.Type == gjson.String {
			return tensor.AppendBytes(dst, v.Str), nil
		}
		return tensor.AppendBytes(dst, v.Raw), nil
	case tensor.Bool:
		switch v.Type {
		case gjson.True:
			return append(dst, 1), nil
		case gjson.False:
			return append(dst, 0), nil
		default:
			return dst, f.errType(v, "true or false")
		}
	case tensor.FP32, tensor.FP64:
		return f.float(dst, v)
	default:
		return f.integer(dst, v)
	}
}

func (f *field) float(dst []byte, v gjson.Result) ([]byte, error) {
	bits := 8 * f.dtype.Size()
	x, err := strconv.ParseFloat(v.Raw, bits)
	if v.Type != gjson.Number || err != nil {
		return dst, f.errType(v, "a number in the range of "+f.dtype.String())
	}
	if bits == 32 {
		return binary.LittleEndian.AppendUint32(dst, math.Float32bits(float32(x))), nil
	}
	return binary.LittleEndian.AppendUint64(dst, math.Float64bits(x)), nil
}

// integer appends a number that JSON writes without a fraction or exponent: 3, but not 3.0 or 3e1.
func (f *field) integer(dst []byte, v gjson.Result) ([]byte, error) {
	size := f.dtype.Size()
	var x uint64
	var err error
	switch f.dtype {
	case tensor.Uint8, tensor.Uint16, tensor.Uint32, tensor.Uint64:
		x, err = strconv.ParseUint(v.Raw, 10, 8*size)
	default:
		var n int64
		n, err = strconv.ParseInt(v.Raw, 10, 8*size)
		x = uint64(n)
	}
	if v.Type != gjson.Number || err != nil {
		return dst, f.errType(v, "an integer in the range of "+f.dtype.String())
	}
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], x)
	return append(dst, b[:size]...), nil
}

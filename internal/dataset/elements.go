package dataset

import (
	"encoding/binary"
	"math"
	"strconv"
	"unsafe"

	"github.com/tutti-server/tutti/core/tensor"
)

func stringOf(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// appendNumber appends a number that is written as text.
func appendNumber(dst []byte, d tensor.DType, s []byte) ([]byte, error) {
	switch d {
	case tensor.FP64:
		v, err := parseFloat(s, 64, d)
		return binary.LittleEndian.AppendUint64(dst, math.Float64bits(v)), err
	case tensor.FP32, tensor.FP16, tensor.BF16:
		v, err := parseFloat(s, 32, d)
		if err != nil {
			return dst, err
		}
		return appendFloat32(dst, d, float32(v))
	}
	neg, mag, err := parseInteger(s)
	if err != nil {
		return dst, err
	}
	return appendInteger(dst, d, neg, mag)
}

func parseFloat(s []byte, bits int, d tensor.DType) (float64, error) {
	v, err := strconv.ParseFloat(stringOf(s), bits)
	switch {
	case err == nil:
		return v, nil
	case math.IsInf(v, 0):
		return v, outOfRange(string(s), d)
	}
	return v, errorf("expected a number, found %q", s)
}

func outOfRange(value string, d tensor.DType) error {
	return errorf("value %s is out of range for %s", value, d)
}

// appendFloat32 appends a float of up to 32 bits.
func appendFloat32(dst []byte, d tensor.DType, v float32) ([]byte, error) {
	if d == tensor.FP32 {
		return binary.LittleEndian.AppendUint32(dst, math.Float32bits(v)), nil
	}
	h, inf := tensor.Float32ToFP16(v), uint16(0x7c00)
	if d == tensor.BF16 {
		h, inf = tensor.Float32ToBF16(v), 0x7f80
	}
	if h&0x7fff == inf && !math.IsInf(float64(v), 0) {
		return dst, outOfRange(strconv.FormatFloat(float64(v), 'g', -1, 32), d)
	}
	return binary.LittleEndian.AppendUint16(dst, h), nil
}

// parseInteger reads an integer. A float without a fraction is one, for example 3.0 or 1e3.
func parseInteger(s []byte) (neg bool, mag uint64, err error) {
	digits := s
	if len(digits) > 0 && (digits[0] == '-' || digits[0] == '+') {
		neg, digits = digits[0] == '-', digits[1:]
	}
	if len(digits) == 0 {
		return neg, 0, errorf("expected a number, found %q", s)
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return parseIntegral(s)
		}
		if mag > (math.MaxUint64-9)/10 {
			mag, err = strconv.ParseUint(stringOf(digits), 10, 64)
			if err != nil {
				return neg, 0, errorf("value %s is out of range for every integer type", s)
			}
			return neg, mag, nil
		}
		mag = mag*10 + uint64(c-'0')
	}
	return neg, mag, nil
}

func parseIntegral(s []byte) (bool, uint64, error) {
	v, err := strconv.ParseFloat(stringOf(s), 64)
	switch {
	case err != nil && !math.IsInf(v, 0):
		return false, 0, errorf("expected a number, found %q", s)
	case math.Abs(v) >= 1<<63 || math.IsNaN(v):
		return false, 0, errorf("value %s is no integer of 64 bits", s)
	case v != math.Trunc(v):
		return false, 0, errorf("value %s is no integer", s)
	}
	return v < 0, uint64(math.Abs(v)), nil
}

// appendInteger appends an integer, given by its sign and magnitude, in any type but FP64, FP32, FP16, BF16 and BYTES.
func appendInteger(dst []byte, d tensor.DType, neg bool, mag uint64) ([]byte, error) {
	limit := uint64(1)
	bits := d.Size() * 8
	switch d {
	case tensor.Bool:
	case tensor.Uint8, tensor.Uint16, tensor.Uint32, tensor.Uint64:
		limit = math.MaxUint64 >> (64 - bits)
	default:
		if limit = math.MaxInt64 >> (64 - bits); neg {
			limit++
		}
	}
	unsigned := d <= tensor.Uint64
	if mag > limit || neg && unsigned && mag > 0 {
		text := strconv.FormatUint(mag, 10)
		if neg {
			text = "-" + text
		}
		return dst, outOfRange(text, d)
	}
	if neg {
		mag = -mag
	}
	switch bits {
	case 8:
		return append(dst, byte(mag)), nil
	case 16:
		return binary.LittleEndian.AppendUint16(dst, uint16(mag)), nil
	case 32:
		return binary.LittleEndian.AppendUint32(dst, uint32(mag)), nil
	}
	return binary.LittleEndian.AppendUint64(dst, mag), nil
}

// appendElements appends the elements of a tensor, converted to the type of the input. A value that the type cannot hold is an
// error; floats are rounded.
func appendElements(dst []byte, in *boundInput, c *Cell) ([]byte, error) {
	switch {
	case c.DType == in.dtype && !in.base64:
		return append(dst, c.Data...), nil
	case c.DType == tensor.Bytes && in.dtype == tensor.Bytes:
		for rest := c.Data; len(rest) > 0; {
			elem, next, ok := tensor.NextBytes(rest)
			if !ok {
				return dst, errorf("the strings of the cell are broken")
			}
			var err error
			if dst, err = appendBase64(dst, elem); err != nil {
				return dst, err
			}
			rest = next
		}
		return dst, nil
	case !convertible(c.DType, in.dtype):
		return dst, errorf("expected %s, found %s", in.dtype, c.DType)
	}
	size := c.DType.Size()
	for i := 0; i+size <= len(c.Data); i += size {
		var err error
		if dst, err = appendConverted(dst, in.dtype, c.DType, c.Data[i:i+size]); err != nil {
			return dst, errorf("element %d: %w", i/size, err)
		}
	}
	return dst, nil
}

// appendConverted appends one element of type from as one of type to.
func appendConverted(dst []byte, to, from tensor.DType, elem []byte) ([]byte, error) {
	float := to == tensor.FP16 || to == tensor.FP32 || to == tensor.FP64 || to == tensor.BF16
	switch from {
	case tensor.FP16, tensor.FP32, tensor.FP64, tensor.BF16:
		v := floatAt(from, elem)
		if float {
			return appendFloat64(dst, to, v)
		}
		if v != math.Trunc(v) || math.Abs(v) >= 1<<63 { // NaN, too
			return dst, errorf("value %v is no integer of 64 bits", v)
		}
		return appendInteger(dst, to, v < 0, uint64(math.Abs(v)))
	}
	neg, mag := integerAt(from, elem)
	if !float {
		return appendInteger(dst, to, neg, mag)
	}
	v := float64(mag)
	if neg {
		v = -v
	}
	return appendFloat64(dst, to, v)
}

// appendFloat64 appends a float of any size.
func appendFloat64(dst []byte, d tensor.DType, v float64) ([]byte, error) {
	if d == tensor.FP64 {
		return binary.LittleEndian.AppendUint64(dst, math.Float64bits(v)), nil
	}
	f := float32(v)
	if math.IsInf(float64(f), 0) && !math.IsInf(v, 0) {
		return dst, outOfRange(strconv.FormatFloat(v, 'g', -1, 64), d)
	}
	return appendFloat32(dst, d, f)
}

func floatAt(d tensor.DType, b []byte) float64 {
	switch d {
	case tensor.FP16:
		return float64(tensor.FP16ToFloat32(binary.LittleEndian.Uint16(b)))
	case tensor.BF16:
		return float64(tensor.BF16ToFloat32(binary.LittleEndian.Uint16(b)))
	case tensor.FP32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(b))
}

// integerAt returns the sign and the magnitude of an integer or boolean.
func integerAt(d tensor.DType, b []byte) (neg bool, mag uint64) {
	var v int64
	switch d {
	case tensor.Bool, tensor.Uint8:
		return false, uint64(b[0])
	case tensor.Uint16:
		return false, uint64(binary.LittleEndian.Uint16(b))
	case tensor.Uint32:
		return false, uint64(binary.LittleEndian.Uint32(b))
	case tensor.Uint64:
		return false, binary.LittleEndian.Uint64(b)
	case tensor.Int8:
		v = int64(int8(b[0]))
	case tensor.Int16:
		v = int64(int16(binary.LittleEndian.Uint16(b)))
	case tensor.Int32:
		v = int64(int32(binary.LittleEndian.Uint32(b)))
	default:
		v = int64(binary.LittleEndian.Uint64(b))
	}
	if v < 0 {
		return true, -uint64(v)
	}
	return false, uint64(v)
}

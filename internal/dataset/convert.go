package dataset

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"unsafe"

	"github.com/tutti-server/tutti/core/tensor"
)

// errorf returns an error without a code: the caller adds the input, the column and the code.
func errorf(format string, args ...any) error { return fmt.Errorf(format, args...) }

// fit returns the shape that a row's elements get in a tensor of shape want, in which -1 is any extent: the same shape; a
// single value fills extents of 1; a flat list fills a tensor with as many elements; an empty list has any rank.
func fit(shape, want []int64) ([]int64, error) {
	if got, ok := fitDeclared(shape, want); ok {
		return append(shape[:0], got...), nil
	}
	return shape, errorf("expected the shape %s, found %s", shapeText(want), shapeText(shape))
}

// fitDeclared is fit for a shape in which -1 is not known yet.
func fitDeclared(shape, want []int64) ([]int64, bool) {
	if len(shape) == len(want) {
		for i, d := range want {
			if d != -1 && shape[i] != -1 && shape[i] != d {
				return nil, false
			}
		}
		return shape, true
	}
	if len(shape) > 1 && !slices.Contains(shape, 0) || slices.Contains(shape, -1) {
		return nil, len(shape) == 1 // as many elements as are needed
	}
	n, open := int64(1), -1
	out := make([]int64, len(want), 8)
	for i, d := range want {
		if out[i] = d; d >= 0 {
			n *= d
			continue
		}
		out[i] = 1
		if open >= 0 && len(shape) > 0 {
			return nil, false // two extents cannot be told from one
		}
		open = i
	}
	have := int64(1)
	for _, d := range shape {
		have *= d
	}
	switch {
	case have == n:
		return out, true
	case open >= 0 && n > 0 && have%n == 0:
		out[open] = have / n
		return out, true
	}
	return nil, false
}

// appendCell appends the elements of a cell to dst, and its extents to shape.
func appendCell(dst []byte, shape []int64, in *boundInput, c *Cell) ([]byte, []int64, error) {
	switch c.Kind {
	case JSON:
		f := filler{in: in, dst: dst, base: len(dst), shape: shape, leaf: -1}
		_, err := f.value(c.Data, skipSpace(c.Data, 0), 0)
		return f.dst, f.shape, err
	case Field:
		return appendField(dst, shape, in, c.Data)
	case Bytes:
		if in.dtype != tensor.Bytes {
			return dst, shape, errorf("expected %s, found %d bytes of text", in.dtype, len(c.Data))
		}
		dst, err := in.appendString(dst, c.Data)
		return dst, shape, err
	default:
		dst, err := appendElements(dst, in, c)
		return dst, append(shape, c.Shape...), err
	}
}

// appendString appends an element of BYTES.
func (in *boundInput) appendString(dst, s []byte) ([]byte, error) {
	if !in.base64 {
		return tensor.AppendBytes(dst, s), nil
	}
	return appendBase64(dst, s)
}

func appendBase64(dst, s []byte) ([]byte, error) {
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst, err := base64.StdEncoding.AppendDecode(dst, s)
	if err != nil {
		return dst, errorf("not Base64: %w", err)
	}
	binary.LittleEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst, nil
}

// filler reads nested lists of a valid JSON value.
type filler struct {
	in    *boundInput
	dst   []byte
	base  int // where the elements of this cell start
	shape []int64
	leaf  int // the depth of the elements; -1: not known
}

// value reads the value at b[i], which is nested depth levels, and returns the index behind it.
func (f *filler) value(b []byte, i, depth int) (int, error) {
	if b[i] != '[' {
		if f.leaf >= 0 && f.leaf != depth || f.leaf < 0 && len(f.shape) != depth {
			return i, errorf("the list is ragged: an element is at another depth than those before it")
		}
		f.leaf = depth
		return f.element(b, i)
	}
	if depth == f.leaf {
		return i, errorf("the list is ragged: an element is at another depth than those before it")
	}
	if len(f.shape) == depth {
		f.shape = append(f.shape, -1)
	}
	n := int64(0)
	for i = skipSpace(b, i+1); b[i] != ']'; n++ {
		var err error
		if i, err = f.value(b, i, depth+1); err != nil {
			return i, err
		}
		if i = skipSpace(b, i); b[i] == ',' {
			i = skipSpace(b, i+1)
		}
	}
	if f.shape[depth] >= 0 && f.shape[depth] != n {
		return i, errorf("the list is ragged: a list has %d elements, and one before it has %d", n, f.shape[depth])
	}
	f.shape[depth] = n
	return i + 1, nil
}

// element appends one element.
func (f *filler) element(b []byte, i int) (int, error) {
	d := f.in.dtype
	c := b[i]
	var err error
	switch {
	case c == '"' && d == tensor.Bytes:
		end, _ := skipString(b, i)
		f.dst, err = f.in.appendQuoted(f.dst, b[i:end])
		return end, err
	case c == '{' && d == tensor.Bytes:
		return f.binary(b, i)
	case d == tensor.Bool && (c == 't' || c == 'f'):
		end, _ := skipValue(b, i, 0)
		if c == 't' {
			f.dst = append(f.dst, 1)
		} else {
			f.dst = append(f.dst, 0)
		}
		return end, nil
	case d != tensor.Bytes && (c == '-' || '0' <= c && c <= '9' || c == 'N' || c == 'I'):
		end, _ := skipNumber2(b, i)
		if f.dst, err = appendNumber(f.dst, d, b[i:end]); err != nil {
			return end, f.at(err)
		}
		return end, nil
	}
	want := "a number"
	switch d {
	case tensor.Bytes:
		want = "a string"
	case tensor.Bool:
		want = "true or false"
	}
	return i, f.at(errorf("expected %s, found %s", want, kindOf(c)))
}

// skipNumber2 is skipNumber for the numbers that are words, too.
func skipNumber2(b []byte, i int) (int, error) {
	if b[i] == 'N' || b[i] == 'I' {
		return skipValue(b, i, 0)
	}
	return skipNumber(b, i)
}

// at says which element of a list an error is about.
func (f *filler) at(err error) error {
	size := f.in.dtype.Size()
	if len(f.shape) == 0 || size == 0 {
		return err
	}
	return errorf("element %d: %w", (len(f.dst)-f.base)/size, err)
}

// appendQuoted appends a JSON string as an element of BYTES.
func (in *boundInput) appendQuoted(dst, quoted []byte) ([]byte, error) {
	if in.base64 {
		return appendBase64(dst, unquote(nil, quoted))
	}
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = unquote(dst, quoted)
	binary.LittleEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst, nil
}

// binary reads {"b64": "..."}.
func (f *filler) binary(b []byte, i int) (int, error) {
	var value []byte
	n := 0
	end, _ := skipObject(b, i, 0, func(name, v []byte) {
		if n++; string(unquote(nil, name)) == "b64" && v[0] == '"' {
			value = v
		}
	})
	if n != 1 || value == nil {
		return end, errorf("expected a string or {\"b64\": \"...\"}, found another object")
	}
	var err error
	f.dst, err = appendBase64(f.dst, unquote(nil, value))
	return end, err
}

// appendField appends a CSV field: JSON text for lists, else one value.
func appendField(dst []byte, shape []int64, in *boundInput, s []byte) ([]byte, []int64, error) {
	text := bytes.TrimSpace(s)
	scalar := !slices.ContainsFunc(in.want, func(d int64) bool { return d != 1 })
	if bytes.HasPrefix(text, []byte{'['}) && (in.dtype != tensor.Bytes || !scalar) {
		end, err := skipValue(text, 0, 0)
		if err == nil && end < len(text) {
			err = expected(text, end, "the end of the field")
		}
		if err == nil {
			return appendCell(dst, shape, in, &Cell{Kind: JSON, Data: text})
		}
		if in.dtype != tensor.Bytes {
			return dst, shape, err
		}
	}
	var err error
	switch in.dtype {
	case tensor.Bytes:
		dst, err = in.appendString(dst, s)
	case tensor.Bool:
		switch string(bytes.ToLower(text)) {
		case "true", "1", "1.0":
			dst = append(dst, 1)
		case "false", "0", "0.0":
			dst = append(dst, 0)
		default:
			err = errorf("expected true or false, found %q", text)
		}
	default:
		dst, err = appendNumber(dst, in.dtype, text)
	}
	return dst, shape, err
}

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

package dataset

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

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
		if end := f.plain(b, i, depth+1); end > i {
			i = end
		} else {
			var err error
			if i, err = f.value(b, i, depth+1); err != nil {
				return i, err
			}
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

// plain appends an element of FP32 that is written without an exponent, and returns the index behind it. It returns i for all else,
// which value reads. It is for long lists.
func (f *filler) plain(b []byte, i, depth int) int {
	if f.in.dtype != tensor.FP32 || f.leaf >= 0 && f.leaf != depth || f.leaf < 0 && len(f.shape) != depth {
		return i
	}
	v, end := decimal(b, i)
	if end == i {
		return i
	}
	f.leaf = depth
	f.dst = binary.LittleEndian.AppendUint32(f.dst, math.Float32bits(v))
	return end
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

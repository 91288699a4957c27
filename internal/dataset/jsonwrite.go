package dataset

import (
	"encoding/base64"
	"io"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/jsontext"
)

// encoder writes the rows of a part in one format.
type encoder interface {
	// write adds a row. It returns bytes that stand for its content, valid until the next call.
	write(cells []Cell) (content []byte, err error)
	// close writes what follows the rows. It does not close the file.
	close() error
}

// jsonEncoder writes JSON Lines.
type jsonEncoder struct {
	w     io.Writer
	names [][]byte // `"name":`
	flat  []bool   // columns whose single element is written without a list
	line  []byte
}

func newJSONEncoder(w io.Writer, columns []Column) *jsonEncoder {
	e := &jsonEncoder{w: w}
	for i := range columns {
		e.names = append(e.names, append(jsontext.AppendValid(nil, columns[i].Name), ':'))
		e.flat = append(e.flat, columns[i].scalar())
	}
	return e
}

// scalar reports whether a column has one element in every row, which is written without a list.
func (c *Column) scalar() bool {
	return c.Kind == Tensor && c.Shape != nil && (len(c.Shape) == 0 || slices.Equal(c.Shape, []int64{1}))
}

func (e *jsonEncoder) write(cells []Cell) ([]byte, error) {
	b := e.line[:0]
	b = append(b, '{')
	for i := range cells {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, e.names[i]...)
		b = appendJSON(b, &cells[i], e.flat[i])
	}
	b = append(b, '}', '\n')
	e.line = b
	_, err := e.w.Write(b)
	return b, err
}

func (*jsonEncoder) close() error { return nil }

// appendJSON appends a cell as JSON.
func appendJSON(b []byte, c *Cell, flat bool) []byte {
	switch c.Kind {
	case Missing, Null:
		return append(b, "null"...)
	case JSON:
		return append(b, c.Data...)
	case Field, Bytes:
		return appendText(b, c.Data)
	}
	if flat && (len(c.Shape) == 0 || slices.Equal(c.Shape, []int64{1})) {
		b, _ = appendElement(b, c.DType, c.Data)
		return b
	}
	b, _ = appendNested(b, c.DType, c.Shape, c.Data)
	return b
}

// appendText appends a string, or {"b64": "..."} for what is no text.
func appendText(b, s []byte) []byte {
	if utf8.Valid(s) {
		return jsontext.Append(b, s)
	}
	b = append(b, `{"b64":"`...)
	return append(base64.StdEncoding.AppendEncode(b, s), `"}`...)
}

// appendNested appends elements as lists of a shape. It returns the elements that are left.
func appendNested(b []byte, d tensor.DType, shape []int64, data []byte) (to, rest []byte) {
	if len(shape) == 0 {
		return appendElement(b, d, data)
	}
	b = append(b, '[')
	for i := range shape[0] {
		if i > 0 {
			b = append(b, ',')
		}
		b, data = appendNested(b, d, shape[1:], data)
	}
	return append(b, ']'), data
}

// appendElement appends the first element of data.
func appendElement(b []byte, d tensor.DType, data []byte) (to, rest []byte) {
	if d == tensor.Bytes {
		elem, rest, _ := tensor.NextBytes(data)
		return appendText(b, elem), rest
	}
	size := d.Size()
	elem, rest := data[:size], data[size:]
	switch d {
	case tensor.Bool:
		return strconv.AppendBool(b, elem[0] != 0), rest
	case tensor.FP64:
		return appendFloat(b, floatAt(d, elem), 64), rest
	case tensor.FP16, tensor.BF16, tensor.FP32:
		return appendFloat(b, floatAt(d, elem), 32), rest
	}
	neg, mag := integerAt(d, elem)
	if neg {
		b = append(b, '-')
	}
	return strconv.AppendUint(b, mag, 10), rest
}

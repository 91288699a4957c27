package dataset

import (
	"bytes"
	"io"

	"github.com/tutti-server/tutti/core/tensor"
)

// csvEncoder writes CSV: a header, then a line per row. Lists are JSON text, and strings are as they are.
type csvEncoder struct {
	w    io.Writer
	flat []bool
	line []byte
	cell []byte
}

func newCSVEncoder(w io.Writer, columns []Column) (*csvEncoder, error) {
	e := &csvEncoder{w: w}
	for i := range columns {
		e.flat = append(e.flat, columns[i].scalar())
		e.field(i, []byte(columns[i].Name))
	}
	_, err := w.Write(append(e.line, '\n'))
	return e, err
}

// field appends a field, in quotes where it needs them. A line of one empty field has quotes: it would be blank.
func (e *csvEncoder) field(i int, s []byte) {
	if i > 0 {
		e.line = append(e.line, ',')
	}
	if bytes.ContainsAny(s, ",\"\r\n") || len(s) == 0 && len(e.flat) == 1 {
		e.line = append(e.line, '"')
		e.line = append(e.line, bytes.ReplaceAll(s, []byte{'"'}, []byte(`""`))...)
		e.line = append(e.line, '"')
		return
	}
	e.line = append(e.line, s...)
}

func (e *csvEncoder) write(cells []Cell) ([]byte, error) {
	e.line = e.line[:0]
	for i := range cells {
		e.cell = appendPlain(e.cell[:0], &cells[i], e.flat[i])
		e.field(i, e.cell)
	}
	e.line = append(e.line, '\n')
	_, err := e.w.Write(e.line)
	return e.line, err
}

func (*csvEncoder) close() error { return nil }

// appendPlain appends a cell as text: strings without quotes, nothing for null, else JSON.
func appendPlain(b []byte, c *Cell, flat bool) []byte {
	switch {
	case c.Kind == Missing || c.Kind == Null || c.Kind == JSON && string(c.Data) == "null":
		return b
	case c.Kind == JSON && c.Data[0] == '"':
		return unquote(b, c.Data)
	case c.Kind == Field:
		return append(b, c.Data...)
	}
	from := len(b)
	b = appendJSON(b, c, flat)
	if len(b) > from && b[from] == '"' && (c.Kind == Bytes || c.DType == tensor.Bytes) {
		text := bytes.Clone(b[from:])
		return unquote(b[:from], text)
	}
	return b
}

package dataset

import (
	"encoding/binary"
	"io"
	"slices"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// groupBytes is the size of the rows after which a row group ends, about.
const groupBytes = 64 << 20

// parquetEncoder writes Parquet. FP16 and BF16 are written as FLOAT, which has all their values; what has no type, such as the
// kept columns of JSON and CSV, is text.
type parquetEncoder struct {
	w       *parquet.GenericWriter[any]
	columns []parquetOut
	row     parquet.Row
	content []byte
	group   int
}

// parquetOut is a column that is written.
type parquetOut struct {
	name     string
	in       boundInput // converts the cells; its dtype is that of the file
	kind     Kind       // Tensor, or Bytes for strings
	lists    int
	optional int // the definition level of a value that is not null: 1 for a column that can be null
	text     bool
}

// ordered is a group whose fields have an order of their own.
type ordered struct {
	parquet.Group
	names []string
}

// Fields implements parquet.Node.
func (o ordered) Fields() []parquet.Field {
	list := o.Group.Fields()
	slices.SortFunc(list, func(a, b parquet.Field) int { return slices.Index(o.names, a.Name()) - slices.Index(o.names, b.Name()) })
	return list
}

func newParquetEncoder(w io.Writer, columns []Column) (e *parquetEncoder, err error) {
	e = new(parquetEncoder)
	root := ordered{Group: parquet.Group{}}
	for i := range columns {
		c := &columns[i]
		out := parquetOut{name: c.Name, kind: Bytes, in: boundInput{dtype: tensor.Bytes}, text: !c.Binary}
		if c.Kind == Tensor && c.DType != tensor.Invalid {
			d := exactType(c.DType)
			if d == tensor.FP16 {
				d = tensor.FP32
			}
			out.kind, out.in.dtype, out.lists = Tensor, d, len(c.Shape)
			if c.scalar() {
				out.lists = 0
			}
		}
		node := leafNode(out.in.dtype, out.text)
		for range out.lists {
			node = parquet.List(node)
		}
		if c.Nullable {
			out.optional, node = 1, parquet.Optional(node)
		}
		root.Group[c.Name] = node
		root.names = append(root.names, c.Name)
		e.columns = append(e.columns, out)
	}
	err = guard(func() error {
		e.w = parquet.NewGenericWriter[any](w, parquet.NewSchema("rows", root), parquet.Compression(&parquet.Snappy), parquet.CreatedBy("tutti", "", ""))
		return nil
	})
	return e, err
}

// leafNode returns the type of elements in a file.
func leafNode(d tensor.DType, text bool) parquet.Node {
	switch d {
	case tensor.Bool:
		return parquet.Leaf(parquet.BooleanType)
	case tensor.Uint8, tensor.Uint16, tensor.Uint32, tensor.Uint64:
		return parquet.Uint(d.Size() * 8)
	case tensor.FP32:
		return parquet.Leaf(parquet.FloatType)
	case tensor.FP64:
		return parquet.Leaf(parquet.DoubleType)
	case tensor.Bytes:
		if text {
			return parquet.String()
		}
		return parquet.Leaf(parquet.ByteArrayType)
	}
	return parquet.Int(d.Size() * 8)
}

func (e *parquetEncoder) write(cells []Cell) ([]byte, error) {
	e.row, e.content = e.row[:0], e.content[:0]
	for i := range cells {
		if err := e.cell(i, &cells[i]); err != nil {
			return nil, status.Errorf(status.InvalidArg, "column '%s': %w", e.columns[i].name, err)
		}
	}
	err := writing(func() error {
		_, err := e.w.WriteRows([]parquet.Row{e.row})
		if e.group += len(e.content); err == nil && e.group >= groupBytes {
			e.group = 0
			err = e.w.Flush()
		}
		return err
	})
	return e.content, err
}

// writing is guard for what the file system says, which is no fault of the rows.
func writing(do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = status.Errorf(status.Internal, "writing Parquet: %v", p)
		}
	}()
	return do()
}

// cell appends the values of a cell to the row.
func (e *parquetEncoder) cell(i int, c *Cell) error {
	out := &e.columns[i]
	if c.Kind == Missing || c.Kind == Null || c.Kind == JSON && string(c.Data) == "null" {
		if out.optional == 0 {
			return errorf("the row has no value")
		}
		e.content = append(e.content, 0)
		e.row = append(e.row, parquet.NullValue().Level(0, 0, i))
		return nil
	}
	e.content = append(e.content, 1)
	from := len(e.content)
	if c.Kind == Bytes && out.kind == Tensor && out.in.dtype == tensor.Bytes { // as read from a part
		c = &Cell{Kind: Tensor, DType: tensor.Bytes, Data: tensor.AppendBytes(nil, c.Data)}
	}
	var shape []int64
	switch {
	case out.kind == Bytes && c.Kind != Tensor:
		e.content = append(e.content, 0, 0, 0, 0)
		e.content = appendPlainBytes(e.content, c)
		binary.LittleEndian.PutUint32(e.content[from:], uint32(len(e.content)-from-4))
	case c.Kind != Tensor:
		return errorf("the row has nulls in its list, or lists of different lengths")
	default:
		if shape = c.Shape; out.lists == 0 {
			shape = nil
		}
		if empty := slices.Index(shape, 0); empty >= 0 {
			shape = shape[:empty+1] // the file does not have the extents of what is not there
		}
		for _, d := range shape {
			e.content = binary.LittleEndian.AppendUint64(e.content, uint64(d))
		}
		from = len(e.content)
		var err error
		if e.content, err = appendElements(e.content, &out.in, c); err != nil {
			return err
		}
	}
	if len(shape) != out.lists && !slices.Contains(shape, 0) {
		return errorf("expected a list of %d levels, found the shape %s", out.lists, shapeText(c.Shape))
	}
	v := parquetValues{e: e, out: out, column: i, rest: e.content[from:]}
	v.list(shape, 0, 0)
	return v.err
}

// appendPlainBytes appends a cell of a column of strings: what is no string is JSON text.
func appendPlainBytes(b []byte, c *Cell) []byte {
	if c.Kind == Bytes {
		return append(b, c.Data...)
	}
	return appendPlain(b, c, true)
}

// parquetValues appends the values of nested lists.
type parquetValues struct {
	e      *parquetEncoder
	out    *parquetOut
	column int
	rest   []byte
	err    error
}

// list appends the elements of a list at a depth, the first of which has the repetition level rep.
func (v *parquetValues) list(shape []int64, depth, rep int) {
	switch {
	case len(shape) == 0:
		v.element(rep, v.out.optional+depth)
	case shape[0] == 0:
		v.e.row = append(v.e.row, parquet.NullValue().Level(rep, v.out.optional+depth, v.column))
	default:
		for range shape[0] {
			v.list(shape[1:], depth+1, rep)
			rep = depth + 1
		}
	}
}

// element appends one value.
func (v *parquetValues) element(rep, def int) {
	d := v.out.in.dtype
	var value parquet.Value
	if d == tensor.Bytes {
		elem, rest, _ := tensor.NextBytes(v.rest)
		if v.rest = rest; v.out.text && !utf8.Valid(elem) {
			v.err = errorf("it has %d bytes that are no UTF-8, and strings of Parquet are; write jsonl", len(elem))
		}
		v.e.row = append(v.e.row, parquet.ByteArrayValue(elem).Level(rep, def, v.column))
		return
	}
	elem := v.rest[:d.Size()]
	v.rest = v.rest[d.Size():]
	switch d {
	case tensor.Bool:
		value = parquet.BooleanValue(elem[0] != 0)
	case tensor.FP32:
		value = parquet.FloatValue(float32(floatAt(d, elem)))
	case tensor.FP64:
		value = parquet.DoubleValue(floatAt(d, elem))
	default:
		neg, mag := integerAt(d, elem)
		if neg {
			mag = -mag
		}
		if d.Size() == 8 {
			value = parquet.Int64Value(int64(mag))
		} else {
			value = parquet.Int32Value(int32(mag))
		}
	}
	v.e.row = append(v.e.row, value.Level(rep, def, v.column))
}

func (e *parquetEncoder) close() error { return writing(e.w.Close) }

package dataset

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// npzEncoder writes arrays whose first axis are the rows. It has the rows of a part in memory: an array is written as a whole.
type npzEncoder struct {
	w       io.Writer
	arrays  []npzArray
	rows    int64
	content []byte
}

// npzArray is an array that is written.
type npzArray struct {
	name  string
	in    boundInput // converts the cells
	shape []int64
	data  bytes.Buffer
}

// npyCodes are the types of numpy, by our own. BF16 is written as float32, which has all its values.
var npyCodes = map[tensor.DType]string{
	tensor.Bool: "|b1", tensor.Int8: "|i1", tensor.Int16: "<i2", tensor.Int32: "<i4", tensor.Int64: "<i8", tensor.Uint8: "|u1",
	tensor.Uint16: "<u2", tensor.Uint32: "<u4", tensor.Uint64: "<u8", tensor.FP16: "<f2", tensor.FP32: "<f4", tensor.FP64: "<f8",
}

func newNPZEncoder(w io.Writer, columns []Column) (*npzEncoder, error) {
	e := &npzEncoder{w: w}
	for i := range columns {
		c := &columns[i]
		d := exactType(c.DType)
		switch {
		case c.Kind != Tensor || d == tensor.Bytes || d == tensor.Invalid:
			return nil, status.Errorf(status.InvalidArg, "an npz has numbers and booleans only, and the column '%s' has others; leave it out, or write jsonl, csv or parquet", c.Name)
		case c.Shape == nil || slices.Contains(c.Shape, -1):
			return nil, status.Errorf(status.InvalidArg, "the rows of an array have one shape, and those of the column '%s' have %s; leave it out, or write jsonl or parquet", c.Name, shapeText(c.Shape))
		}
		shape := c.Shape
		if c.scalar() {
			shape = nil
		}
		e.arrays = append(e.arrays, npzArray{name: c.Name, in: boundInput{dtype: d, want: c.Shape}, shape: shape})
	}
	return e, nil
}

// exactType returns the type in which parquet and npz have the elements.
func exactType(d tensor.DType) tensor.DType {
	if d == tensor.BF16 {
		return tensor.FP32
	}
	return d
}

func (e *npzEncoder) write(cells []Cell) ([]byte, error) {
	e.content = e.content[:0]
	var ends []int
	for i := range cells {
		a := &e.arrays[i]
		var err error
		if e.content, err = a.append(e.content, &cells[i]); err != nil {
			return nil, status.Errorf(status.InvalidArg, "column '%s': %w", a.name, err)
		}
		ends = append(ends, len(e.content))
	}
	from := 0
	for i, end := range ends {
		e.arrays[i].data.Write(e.content[from:end])
		from = end
	}
	e.rows++
	return e.content, nil
}

// append appends the elements of a cell.
func (a *npzArray) append(b []byte, c *Cell) ([]byte, error) {
	if c.Kind != Tensor {
		return b, errorf("the row has no value, and an array has one for each row")
	}
	if _, err := fit(slices.Clone(c.Shape), a.in.want); err != nil {
		return b, err
	}
	return appendElements(b, &a.in, c)
}

func (e *npzEncoder) close() error {
	z := zip.NewWriter(e.w)
	for i := range e.arrays {
		a := &e.arrays[i]
		w, err := z.CreateHeader(&zip.FileHeader{Name: a.name + ".npy", Method: zip.Store})
		if err != nil {
			return err
		}
		if _, err := w.Write(a.header(e.rows)); err != nil {
			return err
		}
		if _, err := w.Write(a.data.Bytes()); err != nil {
			return err
		}
	}
	return z.Close()
}

// header returns the header of an array; its size is a multiple of 64.
func (a *npzArray) header(rows int64) []byte {
	var dims strings.Builder
	fmt.Fprintf(&dims, "%d,", rows)
	for _, d := range a.shape {
		fmt.Fprintf(&dims, " %d,", d)
	}
	text := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", npyCodes[a.in.dtype], strings.TrimPrefix(dims.String(), " "))
	text += strings.Repeat(" ", 63-(10+len(text))%64) + "\n"
	b := append([]byte("\x93NUMPY\x01\x00"), 0, 0)
	binary.LittleEndian.PutUint16(b[8:], uint16(len(text)))
	return append(b, text...)
}

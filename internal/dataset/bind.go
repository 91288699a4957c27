package dataset

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// base64Prefix in front of a column's name says that its strings are Base64 of the bytes that the input gets.
const base64Prefix = "base64:"

// Binder turns rows into the input tensors of a model. It is safe for concurrent use.
type Binder struct {
	inputs   []boundInput
	columns  []string // that are read, each once
	keep     []int    // of columns, those that are copied to the output
	maxBatch int
}

// boundInput is an input and its column.
type boundInput struct {
	name, column string
	cell         int // of the column in a row; -1 for an optional input without a column
	dtype        tensor.DType
	want         []int64 // the shape of a row, without the batch dimension
	optional     bool
	base64       bool
}

// NewBinder binds the columns of a dataset to the inputs of a model: by the Columns of the spec, else by their names. It
// refuses, with InvalidArg, a mapping of an unknown input, a required input or a kept column that the dataset does not have,
// and a column whose kind can never fill its input. For example, a column of strings for an FP32 input.
func NewBinder(d *infer.Description, spec *job.Spec, columns []Column) (*Binder, error) {
	b := &Binder{maxBatch: d.MaxBatch}
	for name := range spec.Columns {
		if !slices.ContainsFunc(d.Inputs, func(p infer.Port) bool { return p.Name == name }) {
			return nil, status.Errorf(status.InvalidArg, "model '%s' has no input '%s' for the column '%s'; its inputs are %s",
				d.Model, name, spec.Columns[name], list(d.Inputs, func(p infer.Port) string { return p.Name }))
		}
	}
	for i := range d.Inputs {
		in, err := b.bind(d, &d.Inputs[i], spec.Columns, columns)
		if err != nil {
			return nil, err
		}
		b.inputs = append(b.inputs, in)
	}
	if !slices.ContainsFunc(b.inputs, func(in boundInput) bool { return in.cell >= 0 }) {
		return nil, status.Errorf(status.InvalidArg, "no column of the dataset is bound to an input of model '%s'; the columns are %s",
			d.Model, list(columns, func(c Column) string { return c.Name }))
	}
	for _, name := range spec.Keep {
		if _, err := find(columns, name, "that is kept"); err != nil {
			return nil, err
		}
		b.keep = append(b.keep, b.cellOf(name))
	}
	return b, nil
}

func (b *Binder) bind(d *infer.Description, p *infer.Port, mapping map[string]string, columns []Column) (boundInput, error) {
	in := boundInput{name: p.Name, column: p.Name, cell: -1, dtype: p.DType, optional: p.Optional}
	shape := p.Shape
	if d.MaxBatch > 0 {
		shape = shape.Tail()
	}
	in.want = slices.Clone(shape.Dims())
	mapped, named := mapping[p.Name]
	if named {
		in.column = mapped
	}
	has := func(name string) bool {
		return slices.ContainsFunc(columns, func(c Column) bool { return c.Name == name })
	}
	if rest, ok := strings.CutPrefix(in.column, base64Prefix); ok && !has(in.column) {
		if in.base64, in.column = true, rest; p.DType != tensor.Bytes {
			return in, status.Errorf(status.InvalidArg, "input '%s' has the type %s; %s is for BYTES", p.Name, p.DType, mapped)
		}
	}
	if p.Optional && !named && !has(in.column) {
		return in, nil
	}
	c, err := find(columns, in.column, "for the input '"+p.Name+"' of model '"+d.Model+"'")
	if err != nil {
		return in, err
	}
	in.cell = b.cellOf(in.column)
	return in, in.check(c)
}

// find returns the named column.
func find(columns []Column, name, what string) (*Column, error) {
	i := slices.IndexFunc(columns, func(c Column) bool { return c.Name == name })
	if i < 0 {
		return nil, status.Errorf(status.InvalidArg, "the dataset has no column '%s' %s; its columns are %s",
			name, what, list(columns, func(c Column) string { return c.Name }))
	}
	return &columns[i], nil
}

// list joins names; a long list is cut off.
func list[T any](all []T, name func(T) string) string {
	const most = 50
	var b strings.Builder
	for i := range all {
		if i == most {
			fmt.Fprintf(&b, " and %d more", len(all)-most)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(name(all[i]))
	}
	if len(all) == 0 {
		return "none"
	}
	return b.String()
}

// cellOf returns the position of a column in a row.
func (b *Binder) cellOf(column string) int {
	i := slices.Index(b.columns, column)
	if i < 0 {
		i = len(b.columns)
		b.columns = append(b.columns, column)
	}
	return i
}

// check refuses a column that can never fill the input.
func (in *boundInput) check(c *Column) error {
	found := ""
	switch {
	case c.Kind == Missing && c.Sample != "":
		found = c.Sample
	case c.Kind == Bytes && in.dtype != tensor.Bytes, c.Kind == JSON && in.dtype != tensor.Bytes && c.Sample == "a string":
		found = "strings"
	case c.Kind == JSON && c.Sample == "an object" && in.dtype != tensor.Bytes:
		found = "objects"
	case c.Kind == JSON && in.dtype == tensor.Bytes && (c.Sample == "a number" || c.Sample == "a boolean"):
		found = strings.TrimPrefix(c.Sample, "a ") + "s"
	case c.Kind == JSON && c.Sample == "a boolean" && in.dtype != tensor.Bool:
		found = "booleans"
	case c.Kind == Tensor && c.DType != tensor.Invalid && !convertible(c.DType, in.dtype):
		found = c.DType.String()
	case c.Kind == Tensor && c.Shape != nil:
		if _, ok := fitDeclared(c.Shape, in.want); !ok {
			return status.Errorf(status.InvalidArg, "input '%s' has the shape %s in each row, and the column '%s' has %s",
				in.name, shapeText(in.want), in.column, shapeText(c.Shape))
		}
	}
	if found != "" {
		return status.Errorf(status.InvalidArg, "input '%s' has the type %s, and the column '%s' has %s; name another column for it", in.name, in.dtype, in.column, found)
	}
	return nil
}

func shapeText(dims []int64) string { return tensor.Of(dims...).String() }

// convertible reports whether elements of a type can become those of another: numbers, and the same otherwise.
func convertible(from, to tensor.DType) bool {
	return from == to || from != tensor.Bytes && to != tensor.Bytes && from != tensor.Bool
}

// Columns returns the columns that the job uses: those of the inputs, then the kept ones. The rows that are bound must
// have exactly these: Set.Select(b.Columns()...).
func (b *Binder) Columns() []string { return slices.Clone(b.columns) }

// staged is an input of a Batch.
type staged struct {
	data  []byte
	shape []int64 // of each row
	has   bool    // the rows have this optional input
	row   []int64 // the shape of the row that is added
	mark  int
	given bool
}

// Batch collects the rows of one request. It is not safe for concurrent use, and reuses its memory.
type Batch struct {
	b      *Binder
	alloc  tensor.Allocator
	inputs []staged
	rows   int
	names  []infer.Named
}

// NewBatch returns an empty batch, whose tensors are made by an allocator.
func (b *Binder) NewBatch(a tensor.Allocator) *Batch {
	return &Batch{b: b, alloc: a, inputs: make([]staged, len(b.inputs))}
}

// Rows returns the number of rows.
func (t *Batch) Rows() int { return t.rows }

// Add appends a row. It returns false, and leaves the batch as it is, if the row cannot be in the same request: the batch has
// max_batch_size rows, or one if that is 0; the shapes differ; or only one of them has an optional input. The caller then sends
// the batch and adds the row to the next one, which always has room. An error is that of the row: it has the code
// InvalidArg, and the batch is as it was.
func (t *Batch) Add(row *Row) (bool, error) {
	if row.Err != nil {
		return false, row.Err
	}
	if t.rows >= max(t.b.maxBatch, 1) {
		return false, nil
	}
	same := true
	for i := range t.inputs {
		s, in := &t.inputs[i], &t.b.inputs[i]
		s.mark = len(s.data)
		if err := s.add(in, row.Cells); err != nil {
			t.undo(i)
			return false, status.Errorf(status.InvalidArg, "input '%s', column '%s': %w", in.name, in.column, err)
		}
		if t.rows > 0 && (s.given != s.has || !slices.Equal(s.row, s.shape)) {
			same = false
		}
	}
	if !same {
		t.undo(len(t.inputs) - 1)
		return false, nil
	}
	if t.rows++; t.rows == 1 {
		for i := range t.inputs {
			s := &t.inputs[i]
			s.has, s.shape = s.given, append(s.shape[:0], s.row...)
		}
	}
	return true, nil
}

// undo removes the row that was added to the inputs up to the last.
func (t *Batch) undo(last int) {
	for i := range t.inputs[:last+1] {
		t.inputs[i].data = t.inputs[i].data[:t.inputs[i].mark]
	}
}

// add appends a cell to the elements.
func (s *staged) add(in *boundInput, cells []Cell) (err error) {
	s.given, s.row = false, s.row[:0]
	if in.cell < 0 {
		return nil
	}
	c := &cells[in.cell]
	if c.Kind == Missing || c.Kind == Null || c.Kind == Field && in.dtype != tensor.Bytes && len(c.Data) == 0 {
		if in.optional {
			return nil
		}
		if c.Kind == Missing {
			return errorf("the row does not have the column")
		}
		return errorf("the column has no value")
	}
	s.given = true
	s.data, s.row, err = appendCell(s.data, s.row, in, c)
	if err != nil {
		return err
	}
	s.row, err = fit(s.row, in.want)
	return err
}

// Inputs returns the tensors, [rows, ...] or [...] if max_batch_size is 0, and empties the batch. The tensors move to the
// caller; the slice is valid until the next call. It fails with Unavailable if there is no memory.
func (t *Batch) Inputs() ([]infer.Named, error) {
	t.names = t.names[:0]
	for i := range t.inputs {
		s, in := &t.inputs[i], &t.b.inputs[i]
		if !s.has {
			continue
		}
		shape := tensor.Of(s.shape...)
		if t.b.maxBatch > 0 {
			shape = shape.Prepend(int64(t.rows))
		}
		buf, err := t.alloc.Alloc(len(s.data))
		if err != nil {
			for j := range t.names {
				t.names[j].Tensor.Release()
			}
			return nil, status.Errorf(status.Unavailable, "input '%s' of %d rows: %w", in.name, t.rows, err)
		}
		copy(buf.Bytes(), s.data)
		t.names = append(t.names, infer.Named{Name: in.name, Tensor: tensor.Tensor{DType: in.dtype, Shape: shape, Buf: buf, Len: len(s.data)}})
	}
	t.Reset()
	return t.names, nil
}

// Reset drops the rows.
func (t *Batch) Reset() {
	t.rows = 0
	for i := range t.inputs {
		t.inputs[i].data, t.inputs[i].has = t.inputs[i].data[:0], false
	}
}

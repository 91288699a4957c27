package dataset

import (
	"slices"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// Renderer turns the output tensors of a model into the cells of rows: the kept columns of the input, then the outputs. It
// is safe for concurrent use.
type Renderer struct {
	columns []Column
	keep    []int // cells of the input's rows
	outputs []string
	batched bool
}

// NewRenderer returns a Renderer for the outputs that the spec names, or all. columns are those of the dataset, of which
// the kept ones are copied. It refuses, with InvalidArg, an unknown output, and two columns of one name.
func NewRenderer(d *infer.Description, spec *job.Spec, b *Binder, columns []Column) (*Renderer, error) {
	r := &Renderer{keep: b.keep, batched: d.MaxBatch > 0}
	for _, name := range spec.Keep {
		c, err := find(columns, name, "that is kept")
		if err != nil {
			return nil, err
		}
		kept := *c
		kept.Nullable = true
		r.columns = append(r.columns, kept)
	}
	for name := range spec.Results {
		if d.Output(name) == nil {
			return nil, status.Errorf(status.InvalidArg, "model '%s' has no output '%s'; its outputs are %s", d.Model, name,
				list(d.Outputs, func(p infer.Port) string { return p.Name }))
		}
	}
	for i := range d.Outputs {
		p := &d.Outputs[i]
		name, ok := spec.Results[p.Name]
		switch {
		case len(spec.Results) > 0 && !ok:
			continue
		case name == "":
			name = p.Name
		}
		shape := p.Shape
		if r.batched {
			shape = shape.Tail()
		}
		r.outputs = append(r.outputs, p.Name)
		r.columns = append(r.columns, Column{Name: name, Kind: Tensor, DType: p.DType, Shape: slices.Clone(shape.Dims())})
	}
	for i := range r.columns {
		same := func(c Column) bool { return c.Name == r.columns[i].Name }
		if slices.ContainsFunc(r.columns[:i], same) {
			return nil, status.Errorf(status.InvalidArg, "the output would have two columns '%s'; name another one for the output of the model in results", r.columns[i].Name)
		}
	}
	return r, nil
}

// Columns returns the columns of the result.
func (r *Renderer) Columns() []Column { return slices.Clone(r.columns) }

// Outputs returns the names of the outputs of the model that are needed, for infer.Request.Outputs.
func (r *Renderer) Outputs() []string { return slices.Clone(r.outputs) }

// outputReader takes the rows of one output tensor.
type outputReader struct {
	dtype tensor.DType
	shape []int64 // of a row
	count int64   // of the elements of a row
	rest  []byte
}

// Render calls yield with the cells of each row of a response to a request of these rows, in their order. The cells are
// valid until yield returns. A response that does not have the outputs, or not as many rows, is Internal.
func (r *Renderer) Render(outputs []infer.Named, rows []*Row, yield func(row *Row, cells []Cell) error) error {
	readers := make([]outputReader, len(r.outputs))
	for i, name := range r.outputs {
		at := slices.IndexFunc(outputs, func(n infer.Named) bool { return n.Name == name })
		if at < 0 {
			return status.Errorf(status.Internal, "the response has no output '%s'", name)
		}
		if err := readers[i].init(&outputs[at], len(rows), r.batched); err != nil {
			return err
		}
	}
	cells := make([]Cell, len(r.columns))
	for _, row := range rows {
		for i, from := range r.keep {
			cells[i] = row.Cells[from]
		}
		for i := range readers {
			c := &cells[len(r.keep)+i]
			data, err := readers[i].next()
			if err != nil {
				return status.Errorf(status.Internal, "output '%s': %w", r.outputs[i], err)
			}
			*c = Cell{Kind: Tensor, DType: readers[i].dtype, Shape: readers[i].shape, Data: data}
		}
		if err := yield(row, cells); err != nil {
			return err
		}
	}
	return nil
}

func (o *outputReader) init(out *infer.Named, rows int, batched bool) error {
	t := &out.Tensor
	dims := slices.Clone(t.Shape.Dims())
	if batched {
		if len(dims) == 0 || dims[0] != int64(rows) {
			return status.Errorf(status.Internal, "output '%s' has the shape %s for %d rows", out.Name, t.Shape, rows)
		}
		dims = dims[1:]
	} else if rows != 1 {
		return status.Errorf(status.Internal, "output '%s' is of one row, not of %d", out.Name, rows)
	}
	o.dtype, o.shape, o.count, o.rest = t.DType, dims, tensor.Of(dims...).Elements(), t.Bytes()
	if size := int64(o.dtype.Size()); size > 0 && o.count*size*int64(rows) != int64(len(o.rest)) {
		return status.Errorf(status.Internal, "output '%s' has %d bytes for the shape %s", out.Name, len(o.rest), t.Shape)
	}
	return nil
}

// next returns the elements of the next row.
func (o *outputReader) next() ([]byte, error) {
	n := int(o.count) * o.dtype.Size()
	if o.dtype == tensor.Bytes {
		rest := o.rest
		for range o.count {
			_, next, ok := tensor.NextBytes(rest)
			if !ok {
				return nil, errorf("its strings are fewer than its shape says")
			}
			rest = next
		}
		n = len(o.rest) - len(rest)
	}
	data := o.rest[:n:n]
	o.rest = o.rest[n:]
	return data, nil
}

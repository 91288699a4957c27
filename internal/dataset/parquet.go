package dataset

import (
	"context"
	"errors"
	"fmt"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"
	schema "github.com/parquet-go/parquet-go/format"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// parquetFiles reads Parquet. A column is a leaf, below any number of lists.
type parquetFiles struct{}

func (parquetFiles) extensions() []string { return []string{".parquet"} }
func (parquetFiles) byOffset() bool       { return false }

// parquetColumn is a column of the schema.
type parquetColumn struct {
	name   string
	leaf   int // the index of its leaf
	dtype  tensor.DType
	kind   schema.Type
	max    int   // the definition level of a value
	lists  []int // the definition level of an element of each list, outermost first
	refuse string
	text   bool // strings are UTF-8
}

// recovered, when deferred, turns a panic into an error of the file.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = status.Errorf(status.InvalidArg, "not a valid Parquet file: %v", p)
	}
}

// guard turns a panic of the library into an error of the file: files may be broken in any way.
func guard(do func() error) (err error) {
	defer recovered(&err)
	if err = do(); err != nil && !errors.As(err, new(*status.Error)) {
		err = status.Errorf(status.InvalidArg, "not a valid Parquet file: %w", err)
	}
	return err
}

// open reads the schema.
func (parquetFiles) open(ctx context.Context, src *source) (*parquet.File, []parquetColumn, *randomFile, error) {
	f, err := src.random(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	var file *parquet.File
	var columns []parquetColumn
	err = guard(func() (err error) {
		file, err = parquet.OpenFile(f, src.file.size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true), parquet.ReadBufferSize(256<<10))
		if err == nil {
			columns, err = parquetSchema(file.Metadata().Schema)
		}
		return err
	})
	if err != nil {
		return nil, nil, nil, errors.Join(err, f.Close())
	}
	return file, columns, f, nil
}

// schemaReader walks over a flat schema.
type schemaReader struct {
	list []schema.SchemaElement
	leaf int
}

// parquetSchema returns the columns below the root of a schema.
func parquetSchema(list []schema.SchemaElement) ([]parquetColumn, error) {
	if len(list) == 0 {
		return nil, errors.New("the schema is empty")
	}
	r := schemaReader{list: list[1:]}
	var columns []parquetColumn
	for range list[0].NumChildren.V {
		var c parquetColumn
		if err := r.column(&c, 0); err != nil {
			return nil, err
		}
		columns = append(columns, c)
	}
	return columns, nil
}

// column reads an element of the schema and those below it.
func (r *schemaReader) column(c *parquetColumn, depth int) error {
	if len(r.list) == 0 || depth > maxDepth {
		return errors.New("the schema is broken")
	}
	e := &r.list[0]
	r.list = r.list[1:]
	repeated := false
	if e.RepetitionType.Valid {
		switch e.RepetitionType.V {
		case schema.Optional:
			c.max++
		case schema.Repeated:
			repeated = true
			c.max++
			c.lists = append(c.lists, c.max)
		}
	}
	if depth == 0 {
		c.name, c.leaf = e.Name, r.leaf
	}
	if e.Type.Valid {
		r.leaf++
		c.setType(e)
		return nil
	}
	_, isList := e.LogicalType.Value.(*schema.ListType)
	isList = isList || e.ConvertedType.Valid && e.ConvertedType.V == deprecated.List
	if n := e.NumChildren.V; n != 1 || !isList && !repeated || isList && len(r.list) > 0 && r.list[0].RepetitionType.V != schema.Repeated {
		c.refuse = "structs or maps"
	}
	for range e.NumChildren.V {
		if err := r.column(c, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// setType finds the type of the elements.
func (c *parquetColumn) setType(e *schema.SchemaElement) {
	c.kind = e.Type.V
	switch logical := e.LogicalType.Value.(type) {
	case *schema.DecimalType:
		c.refuse = "decimals"
	case *schema.IntType:
		c.dtype = intType(int(logical.BitWidth), logical.IsSigned)
		return
	case *schema.StringType, *schema.EnumType, *schema.JsonType:
		c.text = true
	case *schema.Float16Type:
		c.dtype = tensor.FP16
		return
	}
	if e.ConvertedType.Valid {
		switch t := e.ConvertedType.V; {
		case t == deprecated.UTF8 || t == deprecated.Enum || t == deprecated.Json:
			c.text = true
		case t == deprecated.Decimal:
			c.refuse = "decimals"
		case t >= deprecated.Uint8 && t <= deprecated.Uint64:
			c.dtype = intType(8<<(t-deprecated.Uint8), false)
			return
		case t >= deprecated.Int8 && t <= deprecated.Int64:
			c.dtype = intType(8<<(t-deprecated.Int8), true)
			return
		}
	}
	switch c.kind {
	case schema.Boolean:
		c.dtype = tensor.Bool
	case schema.Int32:
		c.dtype = tensor.Int32
	case schema.Int64:
		c.dtype = tensor.Int64
	case schema.Float:
		c.dtype = tensor.FP32
	case schema.Double:
		c.dtype = tensor.FP64
	case schema.ByteArray, schema.FixedLenByteArray:
		c.dtype = tensor.Bytes
	default:
		c.refuse = "timestamps of 96 bits"
	}
}

func intType(bits int, signed bool) tensor.DType {
	d := tensor.Uint8
	if signed {
		d = tensor.Int8
	}
	switch bits {
	case 16:
		d++
	case 32:
		d += 2
	case 64:
		d += 3
	}
	return d
}

func (p parquetFiles) columns(ctx context.Context, src *source) ([]Column, error) {
	_, columns, f, err := p.open(ctx, src)
	if err != nil {
		return nil, err
	}
	list := make([]Column, len(columns))
	for i := range columns {
		c := &columns[i]
		list[i] = Column{Name: c.name, Kind: Tensor, DType: c.dtype, Shape: make([]int64, len(c.lists)), Binary: c.dtype == tensor.Bytes && !c.text}
		for j := range c.lists {
			list[i].Shape[j] = -1
		}
		switch {
		case c.refuse != "":
			list[i] = Column{Name: c.name, Sample: c.refuse}
		case c.dtype == tensor.Bytes && len(c.lists) == 0:
			list[i] = Column{Name: c.name, Kind: Bytes, DType: tensor.Bytes, Binary: !c.text}
		}
	}
	return list, f.Close()
}

func (p parquetFiles) scan(ctx context.Context, src *source, sl *Slice, sel *selection, reuse bool, yield func(*record) bool) error {
	file, columns, f, err := p.open(ctx, src)
	if err != nil {
		return err
	}
	defer f.Close()
	var cursors []*cursor
	for i := range columns {
		at, ok := sel.index[columns[i].name]
		if !ok {
			continue
		}
		if columns[i].refuse != "" {
			return status.Errorf(status.Unsupported, "unsupported: column '%s' has %s; expected numbers, strings, or lists of them", columns[i].name, columns[i].refuse)
		}
		cursors = append(cursors, &cursor{c: &columns[i], cell: at})
	}
	s := parquetScan{sel: sel, cursors: cursors, reuse: reuse, yield: yield, rec: record{line: sl.Row}, left: sl.Rows}
	if sl.Rows == 0 {
		s.left = file.NumRows() - sl.Row
	}
	first := int64(0)
	for _, g := range file.RowGroups() {
		n := g.NumRows()
		if sl.Row+sl.Rows <= first && sl.Rows > 0 {
			break
		}
		if skip := max(sl.Row-first, 0); skip < n && !s.stopped {
			if err := s.group(ctx, g, skip, n-skip); err != nil {
				return err
			}
		}
		first += n
	}
	return nil
}

// parquetScan reads rows of some columns.
type parquetScan struct {
	sel     *selection
	cursors []*cursor
	reuse   bool
	yield   func(*record) bool
	rec     record
	arena   cellArena
	left    int64
	stopped bool
}

// group reads n rows of a row group, from one on.
func (s *parquetScan) group(ctx context.Context, g parquet.RowGroup, skip, n int64) error {
	defer func() {
		for _, c := range s.cursors {
			c.close()
		}
	}()
	err := guard(func() error {
		chunks := g.ColumnChunks()
		for _, c := range s.cursors {
			if c.c.leaf >= len(chunks) {
				return fmt.Errorf("a row group has no column '%s'", c.c.name)
			}
			c.start(chunks[c.c.leaf].Pages())
			if skip > 0 {
				if err := c.pages.SeekToRow(skip); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i := int64(0); i < n && s.left > 0 && !s.stopped; i++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if s.rec.cells == nil || !s.reuse {
			s.rec.cells = s.arena.take(len(s.sel.names))
		}
		if err := s.readCells(); err != nil {
			return err
		}
		s.stopped = !s.yield(&s.rec)
		s.rec.line++
		s.left--
	}
	return nil
}

// readCells reads the cells of the next row.
func (s *parquetScan) readCells() (err error) {
	defer recovered(&err)
	for _, c := range s.cursors {
		cell, err := c.row()
		if err != nil {
			code := status.CodeOf(err)
			if !errors.As(err, new(*status.Error)) {
				code = status.InvalidArg // what the file says contradicts itself
			}
			return status.Errorf(code, "column '%s', row %d: %w", c.c.name, s.rec.line, err)
		}
		s.rec.cells[c.cell] = cell
	}
	return nil
}

package dataset

import (
	"encoding/binary"
	"errors"
	"io"
	"math"
	"slices"

	"github.com/parquet-go/parquet-go"

	"github.com/tutti-server/tutti/core/tensor"
)

// cursor reads the rows of one column of a row group.
type cursor struct {
	c      *parquetColumn
	cell   int // where its cells go
	pages  parquet.Pages
	page   parquet.Page
	values parquet.ValueReader
	buf    []parquet.Value
	at, n  int // of buf
	eof    bool

	levels []uint8 // of the values of a row: repetition and definition
	counts []int64 // of the elements of the open lists
	shape  []int64
	shared []int64 // the shape of the row before, which rows of the same shape share
	data   []byte
}

// valuesAtATime is the number of values that are read together.
const valuesAtATime = 1024

func (c *cursor) start(p parquet.Pages) {
	c.pages, c.eof, c.at, c.n = p, false, 0, 0
	if c.buf == nil {
		c.buf = make([]parquet.Value, valuesAtATime)
	}
}

func (c *cursor) close() {
	_ = guard(func() error { // nothing was written
		if c.page != nil {
			parquet.Release(c.page)
		}
		if c.pages != nil {
			return c.pages.Close()
		}
		return nil
	})
	c.page, c.pages, c.values = nil, nil, nil
}

// peek returns the next value without consuming it; nil behind the last.
func (c *cursor) peek() (*parquet.Value, error) {
	for c.at == c.n && !c.eof {
		if err := guard(c.fill); err != nil {
			return nil, err
		}
	}
	if c.at == c.n {
		return nil, nil //nolint:nilnil // the end is no error
	}
	return &c.buf[c.at], nil
}

// fill reads more values. Those that were read before must not be used any more.
func (c *cursor) fill() error {
	if c.values == nil {
		if c.page != nil {
			parquet.Release(c.page)
			c.page = nil
		}
		p, err := c.pages.ReadPage()
		if errors.Is(err, io.EOF) {
			c.eof = true
			return nil
		}
		if err != nil {
			return err
		}
		c.page, c.values = p, p.Values()
	}
	n, err := c.values.ReadValues(c.buf)
	c.at, c.n = 0, n
	if errors.Is(err, io.EOF) {
		c.values = nil
		return nil
	}
	if err == nil && n == 0 {
		return errors.New("a page has fewer values than it says")
	}
	return err
}

// errEnds is the error for a column that has fewer rows than its row group.
var errEnds = errors.New("the column ends before its row group")

// row returns the cell of the next row.
func (c *cursor) row() (Cell, error) {
	v, err := c.peek()
	switch {
	case err != nil:
		return Cell{}, err
	case v == nil:
		return Cell{}, errEnds
	}
	if len(c.c.lists) == 0 {
		c.at++
		if v.DefinitionLevel() < c.c.max {
			return Cell{Kind: Null}, nil
		}
		if c.c.dtype == tensor.Bytes {
			return Cell{Kind: Bytes, Data: slices.Clone(v.ByteArray())}, nil
		}
		return Cell{Kind: Tensor, DType: c.c.dtype, Data: c.appendValue(make([]byte, 0, 8), v)}, nil
	}
	return c.list()
}

// list reads the values of a row of lists.
func (c *cursor) list() (Cell, error) {
	c.counts, c.shape, c.data, c.levels = c.counts[:0], c.shape[:0], c.data[:0], c.levels[:0]
	even, null, first := true, false, true
	for {
		v, err := c.peek()
		if err != nil {
			return Cell{}, err
		}
		if v == nil || v.RepetitionLevel() == 0 && !first {
			break
		}
		c.at++
		rep, def := v.RepetitionLevel(), v.DefinitionLevel()
		if rep > len(c.counts) || def > c.c.max {
			return Cell{}, errors.New("a repetition or definition level is broken")
		}
		c.levels = append(c.levels, uint8(rep), uint8(def))
		if first && def < c.c.lists[0]-1 {
			null = true
		}
		even = c.closeLists(rep) && even
		if !first {
			c.counts[rep-1]++
		}
		first = false
		whole := c.openLists(def)
		even = even && whole
		if def == c.c.max {
			c.data = c.appendValue(c.data, v)
		}
	}
	even = c.closeLists(0) && even
	switch {
	case null:
		return Cell{Kind: Null}, nil
	case !even:
		return Cell{Kind: JSON, Data: c.json()}, nil
	}
	if !slices.Equal(c.shared, c.shape) {
		c.shared = slices.Clone(c.shape)
	}
	return Cell{Kind: Tensor, DType: c.c.dtype, Shape: c.shared, Data: slices.Clone(c.data)}, nil
}

// closeLists closes the lists below a repetition level. It reports whether they have as many elements as those before them.
func (c *cursor) closeLists(rep int) bool {
	even := true
	for len(c.counts) > rep {
		k := len(c.counts) - 1
		if n := c.counts[k]; c.shape[k] < 0 {
			c.shape[k] = n
		} else if c.shape[k] != n {
			even = false
		}
		c.counts = c.counts[:k]
	}
	return even
}

// openLists opens the lists up to a definition level. It reports whether there is neither a null nor a list that is emptier
// than those before it.
func (c *cursor) openLists(def int) bool {
	for k := len(c.counts); k < len(c.c.lists); k++ {
		first := len(c.shape) == k
		if def < c.c.lists[k] {
			if first {
				c.shape = append(c.shape, 0)
			}
			return c.shape[k] == 0 && def == c.c.lists[k]-1
		}
		if first {
			c.shape = append(c.shape, -1)
		}
		c.counts = append(c.counts, 1)
	}
	return def == c.c.max
}

// json returns the row as JSON, which can have nulls and lists of different lengths.
func (c *cursor) json() []byte {
	var b []byte
	data, open := c.data, 0
	for i := 0; i < len(c.levels); i += 2 {
		rep, def := int(c.levels[i]), int(c.levels[i+1])
		for ; open > rep; open-- {
			b = append(b, ']')
		}
		if i > 0 {
			b = append(b, ',')
		}
		for ; open < len(c.c.lists) && def >= c.c.lists[open]; open++ {
			b = append(b, '[')
		}
		switch {
		case open < len(c.c.lists) && def == c.c.lists[open]-1:
			b = append(b, "[]"...)
		case def < c.c.max:
			b = append(b, "null"...)
		default:
			b, data = appendElement(b, c.c.dtype, data)
		}
	}
	for ; open > 0; open-- {
		b = append(b, ']')
	}
	return b
}

// appendValue appends a value as an element of a tensor.
func (c *cursor) appendValue(b []byte, v *parquet.Value) []byte {
	switch c.c.dtype {
	case tensor.Bool:
		if v.Boolean() {
			return append(b, 1)
		}
		return append(b, 0)
	case tensor.Bytes:
		return tensor.AppendBytes(b, v.ByteArray())
	case tensor.FP16:
		return append(b, v.ByteArray()[:2]...)
	case tensor.FP32:
		return binary.LittleEndian.AppendUint32(b, math.Float32bits(v.Float()))
	case tensor.FP64:
		return binary.LittleEndian.AppendUint64(b, math.Float64bits(v.Double()))
	case tensor.Int64, tensor.Uint64:
		return binary.LittleEndian.AppendUint64(b, uint64(v.Int64()))
	}
	n := uint32(v.Int32())
	switch c.c.dtype.Size() {
	case 1:
		return append(b, byte(n))
	case 2:
		return binary.LittleEndian.AppendUint16(b, uint16(n))
	}
	return binary.LittleEndian.AppendUint32(b, n)
}

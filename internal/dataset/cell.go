package dataset

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"slices"

	"github.com/tutti-server/tutti/core/tensor"
)

// Kind says how the content of a cell is written.
type Kind uint8

// The kinds of cells.
const (
	Missing Kind = iota // the row has no such column
	Null                // the column has no value in this row
	JSON                // Data is one valid JSON value
	Field               // Data is the text of a CSV field; the input that it is bound to gives it a type
	Bytes               // Data is a string or a file, as it is
	Tensor              // Data are the elements of DType and Shape, as in the memory of a tensor
)

// Cell is the value of one column in one row.
type Cell struct {
	Kind  Kind
	DType tensor.DType // of a Tensor
	Shape []int64      // of a Tensor; shared between rows, never written
	Data  []byte       // must not be changed
}

// Key identifies the content of a row: 128 bits of the SHA-256 of its cells. Cells that are missing or null, the order
// of the columns, white space in JSON, the order of the members of JSON objects, and the spelling of numbers (1.0, 1e0)
// do not change it.
type Key [16]byte

// hasher computes keys. It is not safe for concurrent use.
type hasher struct {
	sum     hash.Hash
	scratch []byte
	out     [sha256.Size]byte
}

func newHasher() *hasher { return &hasher{sum: sha256.New()} }

// row returns the key of a row. order lists the columns by their names.
func (h *hasher) row(names []string, order []int, cells []Cell) Key {
	h.sum.Reset()
	for _, i := range order {
		h.cell(names[i], &cells[i])
	}
	return Key(h.sum.Sum(h.out[:0])[:16])
}

// broken returns the key of a row that cannot be read.
func (h *hasher) broken(raw []byte) Key {
	h.sum.Reset()
	h.sum.Write([]byte("unreadable"))
	h.sum.Write(raw)
	return Key(h.sum.Sum(h.out[:0])[:16])
}

// cell adds a name and a value. Both have their length in front, so that no two lists of cells look the same.
func (h *hasher) cell(name string, c *Cell) {
	if c.Kind == Missing || c.Kind == Null || c.Kind == JSON && string(c.Data) == "null" {
		return
	}
	b := binary.LittleEndian.AppendUint32(h.scratch[:0], uint32(len(name)))
	b = append(b, name...)
	b = append(b, byte(c.Kind), byte(c.DType), byte(len(c.Shape)))
	for _, d := range c.Shape {
		b = binary.LittleEndian.AppendUint64(b, uint64(d))
	}
	if c.Kind == JSON {
		at := len(b)
		b = append(b, 0, 0, 0, 0, 0, 0, 0, 0)
		b = appendCanonical(b, c.Data)
		binary.LittleEndian.PutUint64(b[at:], uint64(len(b)-at-8))
		h.scratch = b
		h.sum.Write(b)
		return
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(len(c.Data)))
	h.scratch = b
	h.sum.Write(b)
	h.sum.Write(c.Data)
}

// selection is the list of the columns that are read.
type selection struct {
	names []string
	index map[string]int
	order []int // of the names, sorted
}

func newSelection(names []string) *selection {
	s := &selection{names: names, index: make(map[string]int, len(names)), order: make([]int, len(names))}
	for i, n := range names {
		s.index[n], s.order[i] = i, i
	}
	slices.SortFunc(s.order, func(a, b int) int { return cmp.Compare(names[a], names[b]) })
	return s
}

// id identifies the set of the columns.
func (s *selection) id() string {
	h := newHasher()
	for _, i := range s.order {
		h.cell(s.names[i], &Cell{Kind: Field})
	}
	return hexOf(h.sum.Sum(nil)[:4])
}

// cellArena makes the cells of rows, many at a time.
type cellArena struct{ free []Cell }

const cellsAtATime = 1024

// take returns n empty cells.
func (a *cellArena) take(n int) []Cell {
	if len(a.free) < n {
		a.free = make([]Cell, max(n, cellsAtATime))
	}
	c := a.free[:n:n]
	a.free = a.free[n:]
	return c
}

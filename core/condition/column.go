package condition

import (
	"fmt"
	"unicode/utf8"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/tutti-server/tutti/core/tensor"
)

// column is a tensor, of which CEL sees one row at a time as a list.
type column struct {
	of    *Variable
	shape []int64 // of a row
	size  int     // elements of a row
	row   int     // the current one
	// numbers returns elements from and up to those of a position; nil for BYTES.
	numbers func(from, to int) any
	texts   []string // BYTES: the elements of the current row
	rest    []byte   // BYTES: what follows it
}

// open takes a tensor. next moves to its first row.
func (c *column) open(v *Variable, t *tensor.Tensor, batched bool, rows int) error {
	if !t.Present() {
		return fmt.Errorf("tensor '%s' is absent", v.Name)
	}
	if t.DType != v.DType {
		return fmt.Errorf("tensor '%s' is of type %s, expected %s", v.Name, t.DType, v.DType)
	}
	dims := t.Shape.Dims()
	if batched {
		if len(dims) == 0 || dims[0] != int64(rows) {
			return fmt.Errorf("tensor '%s' has the shape %s, expected %d rows", v.Name, t.Shape, rows)
		}
		dims = dims[1:]
	}
	size := 1
	for _, d := range dims {
		size *= int(d)
	}
	*c = column{of: v, shape: dims, size: size, row: -1}
	if t.DType == tensor.Bytes {
		c.rest = t.Bytes()
	} else {
		c.numbers = numbers(t)
	}
	return nil
}

// next moves to the next row.
func (c *column) next() error {
	c.row++
	if c.numbers != nil {
		return nil
	}
	c.texts = make([]string, c.size) // CEL may keep the last one
	for i := range c.texts {
		elem, rest, ok := tensor.NextBytes(c.rest)
		switch {
		case !ok:
			return fmt.Errorf("tensor '%s' has fewer elements than its shape says", c.of.Name)
		case !utf8.Valid(elem):
			return fmt.Errorf("element %d of tensor '%s' is not UTF-8, expected text", i, c.of.Name)
		}
		c.texts[i], c.rest = string(elem), rest
	}
	return nil
}

// list returns the current row.
func (c *column) list() ref.Val {
	if c.numbers == nil {
		return types.NewStringList(types.DefaultTypeAdapter, c.texts)
	}
	return types.NewDynamicList(types.DefaultTypeAdapter, c.numbers(c.row*c.size, (c.row+1)*c.size))
}

// extents returns the shape of the current row.
func (c *column) extents() ref.Val { return types.NewDynamicList(types.DefaultTypeAdapter, c.shape) }

// numbers returns a function that cuts pieces out of a tensor's elements, as a slice of a type that CEL knows. Elements of other types
// are converted here.
func numbers(t *tensor.Tensor) func(from, to int) any {
	switch t.DType {
	case tensor.FP32:
		return cut(tensor.Slice[float32](t))
	case tensor.FP64:
		return cut(tensor.Slice[float64](t))
	case tensor.FP16:
		return cut(converted(tensor.Slice[uint16](t), tensor.FP16ToFloat32))
	case tensor.BF16:
		return cut(converted(tensor.Slice[uint16](t), tensor.BF16ToFloat32))
	case tensor.Int64:
		return cut(tensor.Slice[int64](t))
	case tensor.Int32:
		return cut(tensor.Slice[int32](t))
	case tensor.Int16:
		return cut(converted(tensor.Slice[int16](t), func(v int16) int64 { return int64(v) }))
	case tensor.Int8:
		return cut(converted(tensor.Slice[int8](t), func(v int8) int64 { return int64(v) }))
	case tensor.Uint64:
		return cut(tensor.Slice[uint64](t))
	case tensor.Uint32:
		return cut(converted(tensor.Slice[uint32](t), func(v uint32) int64 { return int64(v) }))
	case tensor.Uint16:
		return cut(converted(tensor.Slice[uint16](t), func(v uint16) int64 { return int64(v) }))
	case tensor.Uint8:
		return cut(converted(tensor.Slice[uint8](t), func(v uint8) int64 { return int64(v) }))
	default: // BOOL
		return cut(converted(tensor.Slice[uint8](t), func(v uint8) bool { return v != 0 }))
	}
}

func cut[T any](list []T) func(from, to int) any {
	return func(from, to int) any { return list[from:to] }
}

func converted[T, U any](list []T, f func(T) U) []U {
	out := make([]U, len(list))
	for i, v := range list {
		out[i] = f(v)
	}
	return out
}

// shapes returns the shapes of the current row's tensors by name.
func (a *activation) shapes() ref.Val {
	m := make(map[ref.Val]ref.Val, len(a.in))
	for i := range a.in {
		m[types.String(a.c.uses[i].Name)] = a.in[i].extents()
	}
	return types.NewRefValMap(types.DefaultTypeAdapter, m)
}

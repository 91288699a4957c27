package convert

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/backends/caffe2/onnxgraph"
)

// value is a tensor of the graph: an input, a constant, or an output of a node.
type value struct {
	name string
	elem onnxgraph.Elem
	// dims are the dimensions, -1 for variable ones. Nil: not even their number is known.
	dims []int64
	// ints are the elements of a constant of a few integers, such as a shape; nil for any other tensor.
	ints []int64
	// fill has the elements of a constant that is not in the graph yet. See converter.use.
	fill *fill
	// lost is the reason why an output of an operator has no tensor; "" for any other value.
	lost string
}

// use returns the name of a tensor for a node that reads it. A constant is added to the graph when it is first used.
func (c *converter) use(v *value) string {
	if v.fill != nil {
		c.addConstant(v)
		v.fill = nil
	}
	return v.name
}

// rank returns the number of dimensions. If it is not known, the operator is refused, and rank returns -1.
func (o *op) rank(v *value) int {
	if v.dims == nil {
		o.refuse("it needs the number of dimensions of blob '%s', which depends on the request", o.blobOf(v))
		return -1
	}
	return len(v.dims)
}

// blobOf returns the name of the blob that an input of the operator is, for errors.
func (o *op) blobOf(v *value) string {
	if i := slices.Index(o.in, v); i >= 0 {
		return o.def.Inputs[i]
	}
	return v.name
}

// axis returns an axis as a number of at least 0, of a tensor with that many dimensions. upTo is the highest one allowed.
func (o *op) axis(what string, axis int64, rank, upTo int) int {
	if axis < 0 {
		axis += int64(rank)
	}
	if rank >= 0 && (axis < 0 || axis > int64(upTo)) {
		o.invalid("%s is out of range for %d dimensions", what, rank)
	}
	return int(min(max(axis, 0), int64(max(upTo, 0))))
}

// axisArg returns the argument that is an axis of a tensor with that many dimensions.
func (o *op) axisArg(name string, byDefault int64, rank int) int {
	given := o.integer(name, byDefault)
	return o.axis(fmt.Sprintf("argument '%s' %d", name, given), given, rank, rank-1)
}

// sizes returns a shape whose dimensions are all variable; nil for a negative rank.
func sizes(rank int) []int64 {
	if rank < 0 {
		return nil
	}
	return slices.Repeat([]int64{-1}, rank)
}

// product multiplies dimensions. It returns -1 if one is variable, or if the product is larger than any tensor.
func product(dims []int64) int64 {
	p := int64(1)
	for _, d := range dims {
		if d < 0 || d > 0 && p > math.MaxInt64/8/d {
			return -1
		}
		p *= d
	}
	return p
}

// join returns the dimensions of the given lists, one after another. It is not nil: no dimensions are those of a scalar.
func join(lists ...[]int64) []int64 { return append([]int64{}, slices.Concat(lists...)...) }

// broadcast returns the dimensions of an elementwise operation with numpy's rules; nil when a rank is not known.
func (o *op) broadcast(a, b []int64) []int64 {
	if a == nil || b == nil {
		return nil
	}
	if len(a) < len(b) {
		a, b = b, a
	}
	out := slices.Clone(a)
	for i, d := range b {
		k := len(a) - len(b) + i
		switch {
		case d == out[k] || d == 1:
		case out[k] == 1 || out[k] == -1:
			out[k] = d
		case d != -1:
			o.invalid("shapes %s and %s do not match", shapeText(a), shapeText(b))
		}
	}
	return out
}

// shapeText returns a shape for errors, for example "[-1,3]".
func shapeText(dims []int64) string {
	if dims == nil {
		return "[?]"
	}
	return strings.ReplaceAll(fmt.Sprint(dims), " ", ",")
}

// expect checks one known dimension of a tensor.
func (o *op) expect(v *value, k int, want int64, why string) {
	if v.dims != nil && k < len(v.dims) && v.dims[k] >= 0 && want >= 0 && v.dims[k] != want {
		o.invalid("blob '%s' has shape %s, expected dimension %d to be %d, %s", o.blobOf(v), shapeText(v.dims), k, want, why)
	}
}

// shapeOf returns dimensions from to to-1 of v as a tensor of one dimension: a constant if they are known.
func (o *op) shapeOf(v *value, from, to int) *value {
	if v.dims != nil && !slices.Contains(v.dims[from:to], -1) {
		return o.ints(v.dims[from:to]...)
	}
	x := o.temp("Shape", []int64{int64(to - from)}, []*value{v}, onnxgraph.IntAttr("start", int64(from)), onnxgraph.IntAttr("end", int64(to)))
	x.elem = onnxgraph.Int64
	return x
}

// reshaped returns v with other dimensions. They must be known, except one.
func (o *op) reshaped(v *value, dims ...int64) *value {
	return o.temp("Reshape", dims, []*value{v, o.ints(dims...)})
}

// flat returns v as a matrix: the dimensions before axis are its rows.
func (o *op) flat(v *value, axis int) *value {
	if len(v.dims) == 2 && axis == 1 {
		return v
	}
	var dims []int64
	if v.dims != nil {
		dims = []int64{product(v.dims[:axis]), product(v.dims[axis:])}
	} else {
		dims = sizes(2)
	}
	return o.temp("Flatten", dims, []*value{v}, onnxgraph.IntAttr("axis", int64(axis)))
}

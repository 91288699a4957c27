package convert

import (
	"slices"

	"github.com/tutti-server/tutti/backends/caffe2/onnxgraph"
)

// fullyConnected converts FC, whose weights are [outputs, inputs], and FCTransposed, whose weights are [inputs, outputs].
func fullyConnected(transposed bool) func(o *op) {
	return func(o *op) {
		x, weight, bias := o.in[0], o.in[1], o.in[2]
		rank, own := o.rank(x), o.rank(weight)
		axis, axisW := o.axisArg("axis", 1, rank), o.axisArg("axis_w", 1, own)
		if o.err != nil {
			return
		}
		rows, columns := product(weight.dims[:axisW]), product(weight.dims[axisW:])
		outputs, inputs := rows, columns
		if transposed {
			outputs, inputs = columns, rows
		}
		if got := product(x.dims[axis:]); got >= 0 && inputs >= 0 && got != inputs {
			o.invalid("blob '%s' has %d elements in a row, and the weights '%s' of shape %s expect %d",
				o.def.Inputs[0], got, o.def.Inputs[1], shapeText(weight.dims), inputs)
		}
		o.expect(bias, 0, outputs, "the outputs of the weights")
		if n := product(bias.dims); bias.dims != nil && n >= 0 && outputs >= 0 && n != outputs {
			o.invalid("the bias '%s' has %d elements, expected %d", o.def.Inputs[2], n, outputs)
		}
		flag := int64(1)
		if transposed {
			flag = 0
		}
		in := []*value{o.flat(x, axis), o.flat(weight, axisW), bias}
		if axis == 1 {
			o.out(0, "Gemm", []int64{x.dims[0], outputs}, in, onnxgraph.IntAttr("transB", flag))
			return
		}
		y := o.temp("Gemm", []int64{-1, outputs}, in, onnxgraph.IntAttr("transB", flag))
		o.out(0, "Reshape", join(x.dims[:axis], []int64{outputs}), []*value{y, o.shapeWith(x, axis, outputs)})
	}
}

// shapeWith returns the first dimensions of x and then others as a tensor of one dimension. Of the others, -1 is what is left.
func (o *op) shapeWith(x *value, n int, others ...int64) *value {
	if !slices.Contains(x.dims[:n], -1) {
		return o.ints(join(x.dims[:n], others)...)
	}
	v := o.temp("Concat", []int64{int64(n + len(others))}, []*value{o.shapeOf(x, 0, n), o.ints(others...)}, onnxgraph.IntAttr("axis", 0))
	v.elem = onnxgraph.Int64
	return v
}

// matMul converts MatMul: of two matrices, which tensors are flattened to.
func matMul(o *op) {
	a, b := o.in[0], o.in[1]
	axisA, axisB := o.axisArg("axis_a", 1, o.rank(a)), o.axisArg("axis_b", 1, o.rank(b))
	transA, transB := o.flag("trans_a"), o.flag("trans_b")
	if o.err != nil {
		return
	}
	a, b = o.turned(o.flat(a, axisA), transA), o.turned(o.flat(b, axisB), transB)
	o.out(0, "MatMul", []int64{a.dims[0], b.dims[1]}, []*value{a, b})
}

// turned returns v with its last two dimensions exchanged, if so wanted.
func (o *op) turned(v *value, wanted bool) *value {
	n := len(v.dims)
	if !wanted || n < 2 {
		return v
	}
	dims, order := slices.Clone(v.dims), make([]int64, n)
	for k := range order {
		order[k] = int64(k)
	}
	dims[n-1], dims[n-2] = dims[n-2], dims[n-1]
	order[n-1], order[n-2] = order[n-2], order[n-1]
	return o.temp("Transpose", dims, []*value{v}, onnxgraph.IntsAttr("perm", order...))
}

// batchMatMul converts BatchMatMul: of the last two dimensions, as numpy's matmul.
func batchMatMul(o *op) {
	o.flag("broadcast") // numpy's rules hold without it too, for shapes that Caffe2 accepts
	a, b := o.in[0], o.in[1]
	m, n := o.rank(a), o.rank(b)
	transA, transB := o.flag("trans_a"), o.flag("trans_b")
	if m == 0 || n == 0 || m == 1 && transA || n == 1 && transB {
		o.invalid("it multiplies shapes %s and %s, expected matrices", shapeText(a.dims), shapeText(b.dims))
	}
	if o.err != nil {
		return
	}
	a, b = o.turned(a, transA), o.turned(b, transB)
	var dims []int64
	if m >= 2 && n >= 2 {
		dims = join(o.broadcast(a.dims[:m-2], b.dims[:n-2]), []int64{a.dims[m-2], b.dims[n-1]})
		if x, y := a.dims[m-1], b.dims[n-2]; x >= 0 && y >= 0 && x != y {
			o.invalid("it multiplies shapes %s and %s: %d columns and %d rows", shapeText(a.dims), shapeText(b.dims), x, y)
		}
	}
	o.out(0, "MatMul", dims, []*value{a, b})
}

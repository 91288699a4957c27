package convert

import (
	"math"
	"slices"

	"github.com/tutti-server/tutti/backends/caffe2/onnxgraph"
)

// unary converts an operator that ONNX has too, under the name kind.
func unary(kind string) func(o *op) {
	return func(o *op) { o.out(0, kind, o.in[0].dims, o.in[:1]) }
}

// withNumber converts an operator of ONNX with one number as an attribute, which is an argument of the same name.
func withNumber(kind, name string, byDefault float32) func(o *op) {
	return func(o *op) {
		o.out(0, kind, o.in[0].dims, o.in, onnxgraph.FloatAttr(name, o.number(name, byDefault)))
	}
}

// selu converts Selu. Caffe2's scale is gamma in ONNX.
func selu(o *op) {
	o.out(0, "Selu", o.in[0].dims, o.in,
		onnxgraph.FloatAttr("alpha", o.number("alpha", 1.6732632423543772848170429916717)),
		onnxgraph.FloatAttr("gamma", o.number("scale", 1.0507009873554804934193349852946)))
}

// hardSigmoid converts HardSigmoid.
func hardSigmoid(o *op) {
	o.out(0, "HardSigmoid", o.in[0].dims, o.in,
		onnxgraph.FloatAttr("alpha", o.number("alpha", 0.2)), onnxgraph.FloatAttr("beta", o.number("beta", 0.5)))
}

// powers converts Sqr and Cube: the n-th power.
func powers(n int) func(o *op) {
	return func(o *op) {
		x, y := o.in[0], o.in[0]
		for range n - 2 {
			y = o.temp("Mul", x.dims, []*value{y, x})
		}
		o.out(0, "Mul", x.dims, []*value{y, x})
	}
}

// rsqrt converts Rsqrt: one divided by the square root.
func rsqrt(o *op) {
	o.out(0, "Reciprocal", o.in[0].dims, []*value{o.temp("Sqrt", o.in[0].dims, o.in)})
}

// swish converts Swish: the input times its sigmoid.
func swish(o *op) {
	x := o.in[0]
	o.out(0, "Mul", x.dims, []*value{x, o.temp("Sigmoid", x.dims, o.in)})
}

// scale converts Scale: the input times a number.
func scale(o *op) {
	o.out(0, "Mul", o.in[0].dims, []*value{o.in[0], o.scalar(o.in[0], o.number("scale", 1))})
}

// clip converts Clip. Without limits it copies.
func clip(o *op) {
	in := []*value{o.in[0], nil, nil}
	for i, limit := range []struct {
		name string
		none float32
	}{{"min", -math.MaxFloat32}, {"max", math.MaxFloat32}} {
		if o.has(limit.name) {
			in[i+1] = o.scalar(o.in[0], o.number(limit.name, limit.none))
		}
	}
	o.out(0, "Clip", o.in[0].dims, in)
}

// pow converts Pow: to the power of an argument or of the second input.
func pow(o *op) {
	if len(o.in) == 2 {
		onPairs("Pow", onnxgraph.Undefined)(o)
		return
	}
	if !o.has("exponent") {
		o.invalid("it has neither a second input nor the argument 'exponent'")
	}
	o.out(0, "Pow", o.in[0].dims, []*value{o.in[0], o.scalar(o.in[0], o.number("exponent", 0))})
}

// onPairs converts an operator on two tensors. The result has the type e, or that of the inputs if e is Undefined.
func onPairs(kind string, e onnxgraph.Elem) func(o *op) {
	return func(o *op) {
		a, b := o.in[0], o.in[1]
		if o.flag("broadcast") {
			b = o.aligned(a, b)
		} else if o.has("axis") && o.integer("axis", -1) != -1 || o.has("axis_str") && o.text("axis_str", "") != "" {
			o.invalid("it has the argument 'axis' without 'broadcast'")
		}
		v := o.out(0, kind, o.broadcast(a.dims, b.dims), []*value{a, b})
		if e != onnxgraph.Undefined {
			v.elem = e
		}
	}
}

// differ converts NE, which ONNX does not have.
func differ(o *op) {
	a, b := o.in[0], o.in[1]
	if o.flag("broadcast") {
		b = o.aligned(a, b)
	}
	equal := o.temp("Equal", o.broadcast(a.dims, b.dims), []*value{a, b})
	equal.elem = onnxgraph.Bool
	o.out(0, "Not", equal.dims, []*value{equal})
}

// aligned returns b with dimensions of 1 behind its own, so that numpy's broadcasting does what the argument broadcast of Caffe2 does:
// the dimensions of b are those of a from an axis on, by default the last ones.
func (o *op) aligned(a, b *value) *value {
	axis := o.integer("axis", -1)
	if name := o.text("axis_str", ""); name != "" {
		order := o.text("order", "NCHW")
		for axis = 0; int(axis) < len(order) && order[axis:axis+1] != name; axis++ {
			continue
		}
	}
	if b.dims != nil && product(b.dims) == 1 {
		return o.reshaped(b, 1)
	}
	if axis == -1 {
		return b
	}
	rank, own := o.rank(a), o.rank(b)
	behind := rank - own - int(min(max(axis, math.MinInt32), math.MaxInt32))
	if rank < 0 || own < 0 {
		return b
	}
	if axis < 0 || behind < 0 {
		o.invalid("a tensor of shape %s cannot be broadcast to %s at axis %d", shapeText(b.dims), shapeText(a.dims), axis)
		return b
	}
	return o.unsqueezed(b, own, behind)
}

// unsqueezed returns v with n dimensions of 1 from position at on.
func (o *op) unsqueezed(v *value, at, n int) *value {
	if n == 0 {
		return v
	}
	axes := make([]int64, n)
	for i := range axes {
		axes[i] = int64(at + i)
	}
	dims := join(v.dims[:at], ones(n), v.dims[at:])
	return o.temp("Unsqueeze", dims, []*value{v, o.ints(axes...)})
}

// ones returns n dimensions of 1.
func ones(n int) []int64 { return slices.Repeat([]int64{1}, n) }

// variadic converts an operator over any number of tensors of one shape. pairwise is the operator of ONNX for two tensors, where that of
// many is for floating point numbers only.
func variadic(kind, pairwise string) func(o *op) {
	return func(o *op) {
		x := o.in[0]
		for i, v := range o.in[1:] {
			if v.dims != nil && x.dims != nil && len(v.dims) != len(x.dims) {
				o.invalid("input %d has shape %s, expected that of the first, %s", i+1, shapeText(v.dims), shapeText(x.dims))
			}
			for k := range x.dims {
				o.expect(v, k, x.dims[k], "as in the first input")
			}
		}
		if pairwise == "" || x.elem == onnxgraph.Float || x.elem == onnxgraph.Double || len(o.in) == 1 {
			o.out(0, kind, x.dims, o.in)
			return
		}
		for _, v := range o.in[1 : len(o.in)-1] {
			x = o.temp(pairwise, x.dims, []*value{x, v})
		}
		o.out(0, pairwise, x.dims, []*value{x, o.in[len(o.in)-1]})
	}
}

// pRelu converts PRelu: one slope, or one for each channel.
func pRelu(o *op) {
	o.channelsFirst()
	x, slope := o.in[0], o.in[1]
	rank := o.rank(x)
	if o.rank(slope) != 1 && o.err == nil {
		o.invalid("the slopes have shape %s, expected one dimension", shapeText(slope.dims))
	}
	if o.err != nil {
		return
	}
	if slope.dims[0] != 1 && rank > 1 {
		o.expect(slope, 0, x.dims[1], "the number of channels")
		slope = o.unsqueezed(slope, 1, rank-2)
	}
	o.out(0, "PRelu", x.dims, []*value{x, slope})
}

// softmax converts Softmax: over all dimensions from an axis on, together.
func softmax(o *op) {
	x := o.in[0]
	rank := o.rank(x)
	axis := o.axisArg("axis", 1, rank)
	if o.err != nil {
		return
	}
	if product(x.dims[axis+1:]) == 1 {
		o.out(0, "Softmax", x.dims, o.in, onnxgraph.IntAttr("axis", int64(axis)))
		return
	}
	y := o.flat(x, axis)
	y = o.temp("Softmax", y.dims, []*value{y}, onnxgraph.IntAttr("axis", 1))
	o.out(0, "Reshape", x.dims, []*value{y, o.shapeOf(x, 0, rank)})
}

// copied converts an operator that copies its input: between devices, or when it is not training.
func copied(o *op) { o.out(0, "Identity", o.in[0].dims, o.in[:1]).ints = o.in[0].ints }

// dropout converts Dropout of a net that is not trained.
func dropout(o *op) {
	o.number("ratio", 0)
	o.tested()
	copied(o)
}

// tested refuses an operator that is training: its result would depend on chance, or on the other rows of the batch.
func (o *op) tested() {
	if !o.flag("is_test") {
		o.refuse("argument 'is_test' is not 1, so it trains: export the net for inference")
	}
}

// cast converts Cast.
func cast(o *op) {
	e := o.elem("to", onnxgraph.Undefined)
	if e == onnxgraph.Undefined {
		o.invalid("it has no argument 'to'")
	}
	v := o.out(0, "Cast", o.in[0].dims, o.in, onnxgraph.IntAttr("to", int64(e)))
	v.elem, v.ints = e, nil
	if e == onnxgraph.Int64 || e == onnxgraph.Int32 {
		v.ints = o.in[0].ints
	}
}

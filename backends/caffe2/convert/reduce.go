package convert

import (
	"slices"

	"github.com/tutti-server/tutti/backends/caffe2/onnxgraph"
)

// reduced converts a reduction over the dimensions of the argument axes, by default all.
func reduced(kind string) func(o *op) {
	return func(o *op) {
		rank := o.rank(o.in[0])
		axes := o.integers("axes")
		for i, a := range axes {
			axes[i] = int64(o.axis("argument 'axes'", a, rank, rank-1))
		}
		for k := 0; len(axes) < rank && !o.has("axes"); k++ {
			axes = append(axes, int64(k))
		}
		o.reduce(kind, axes, o.integer("keepdims", 1) != 0)
	}
}

// reducedEnd converts a reduction over the first or the last dimensions, which it removes.
func reducedEnd(kind string, last bool) func(o *op) {
	return func(o *op) {
		rank := o.rank(o.in[0])
		n := o.integer("num_reduce_dim", 1)
		if o.err == nil && (n < 0 || n > int64(rank)) {
			o.invalid("argument 'num_reduce_dim' is %d for shape %s", n, shapeText(o.in[0].dims))
		}
		if o.err != nil {
			return
		}
		var axes []int64
		for k := range n {
			if last {
				k += int64(rank) - n
			}
			axes = append(axes, k)
		}
		o.reduce(kind, axes, false)
	}
}

// reduce makes output 0 the reduction of the first input over axes.
func (o *op) reduce(kind string, axes []int64, keep bool) {
	if o.err != nil {
		return
	}
	x := o.in[0]
	if len(axes) == 0 {
		o.out(0, "Identity", x.dims, []*value{x})
		return
	}
	dims := []int64{}
	for k, d := range x.dims {
		switch {
		case !slices.Contains(axes, int64(k)):
			dims = append(dims, d)
		case keep:
			dims = append(dims, 1)
		}
	}
	kept := int64(0)
	if keep {
		kept = 1
	}
	if kind == "ReduceSum" { // the only one that has its axes as an input already
		o.out(0, kind, dims, []*value{x, o.ints(axes...)}, onnxgraph.IntAttr("keepdims", kept))
		return
	}
	o.out(0, kind, dims, []*value{x}, onnxgraph.IntAttr("keepdims", kept), onnxgraph.IntsAttr("axes", axes...))
}

// argument converts ArgMax and ArgMin.
func argument(kind string) func(o *op) {
	return func(o *op) {
		x := o.in[0]
		axis := o.axisArg("axis", -1, o.rank(x))
		keep := o.integer("keepdims", 1) != 0
		if o.err != nil {
			return
		}
		kept, middle := int64(0), []int64(nil)
		if keep {
			kept, middle = 1, ones(1)
		}
		dims := join(x.dims[:axis], middle, x.dims[axis+1:])
		o.out(0, kind, dims, o.in, onnxgraph.IntAttr("axis", int64(axis)), onnxgraph.IntAttr("keepdims", kept)).elem = onnxgraph.Int64
	}
}

// topK converts TopK, of the last dimension by default. Its third output, indices into the flattened tensor, is not computed.
func topK(o *op) {
	x := o.in[0]
	rank := o.rank(x)
	k, axis := o.integer("k", -1), o.axisArg("axis", -1, rank)
	if o.err == nil && (k < 1 || k > maxFilled || x.dims[axis] >= 0 && k > x.dims[axis]) {
		o.invalid("argument 'k' is %d for shape %s", k, shapeText(x.dims))
	}
	if o.err != nil {
		return
	}
	dims := slices.Clone(x.dims)
	dims[axis] = k
	out := []*value{o.result(0, x.elem, dims), o.result(1, onnxgraph.Int64, dims)}
	o.node("TopK", []*value{x, o.ints(k)}, out, onnxgraph.IntAttr("axis", int64(axis)))
}

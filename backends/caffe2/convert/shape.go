package convert

import (
	"math"
	"slices"

	"github.com/tutti-server/tutti/backends/caffe2/onnxgraph"
)

// reshape converts Reshape. Its second output is the old shape.
func reshape(o *op) {
	x := o.in[0]
	if len(o.def.Outputs) > 1 {
		o.shapeOutput(1, x)
	}
	given := o.arg("shape")
	switch {
	case given != nil && len(o.in) == 2:
		o.invalid("it has a second input and the argument 'shape', expected one of them")
	case given != nil:
		shape := o.integers("shape")
		o.out(0, "Reshape", o.reshapedDims(x.dims, shape), []*value{x, o.ints(shape...)})
	case len(o.in) < 2:
		o.invalid("it has neither a second input nor the argument 'shape'")
	default:
		shape := o.in[1]
		var dims []int64
		if shape.ints != nil {
			dims = o.reshapedDims(x.dims, shape.ints)
		} else if len(shape.dims) == 1 && shape.dims[0] >= 0 && shape.dims[0] <= maxRank {
			dims = sizes(int(shape.dims[0]))
		}
		o.out(0, "Reshape", dims, []*value{x, o.asInt64(shape)})
	}
}

// reshapedDims returns the dimensions of a tensor of shape x after a Reshape. In shape, 0 keeps a dimension, and -1 is what is left.
func (o *op) reshapedDims(x, shape []int64) []int64 {
	out := slices.Clone(shape)
	if out == nil {
		out = []int64{}
	}
	rest := slices.Clone(x) // the dimensions whose product the others have
	open, kept := -1, x != nil
	for k, d := range shape {
		switch {
		case d < -1:
			o.invalid("the new shape is %s, expected dimensions of at least -1", shapeText(shape))
		case d == -1 && open >= 0:
			o.invalid("the new shape is %s, expected at most one dimension of -1", shapeText(shape))
		case d == -1:
			open = k
		case d == 0 && x == nil:
			out[k], kept = -1, false
		case d == 0 && k >= len(x):
			o.invalid("the new shape is %s: there is no dimension %d in %s", shapeText(shape), k, shapeText(x))
		case d == 0:
			out[k], rest[k] = x[k], 1
		}
	}
	if o.err != nil || !kept {
		return out
	}
	have, fixed := product(rest), int64(1)
	for k, d := range shape {
		if d > 0 {
			fixed = product([]int64{fixed, shape[k]})
		}
	}
	switch {
	case have < 0 || fixed < 0:
	case open >= 0 && fixed > 0 && have%fixed == 0:
		out[open] = have / fixed
	case open < 0 && have == fixed:
	default:
		o.invalid("a tensor of shape %s cannot have the shape %s", shapeText(x), shapeText(shape))
	}
	return out
}

// shapeOutput makes output i the shape of a tensor.
func (o *op) shapeOutput(i int, x *value) {
	v := o.out(i, "Shape", []int64{-1}, []*value{x})
	v.elem = onnxgraph.Int64
	if x.dims != nil {
		v.dims = []int64{int64(len(x.dims))}
		if !slices.Contains(x.dims, -1) && len(x.dims) <= maxKnown {
			v.ints = append([]int64{}, x.dims...)
		}
	}
}

// shape converts Shape, of all dimensions or of those that the argument axes lists.
func shape(o *op) {
	axes := o.integers("axes")
	if len(axes) == 0 {
		o.shapeOutput(0, o.in[0])
		return
	}
	x := o.in[0]
	rank := o.rank(x)
	for i, a := range axes {
		axes[i] = int64(o.axis("argument 'axes'", a, rank, rank-1))
	}
	if o.err != nil {
		return
	}
	all := o.temp("Shape", []int64{int64(rank)}, []*value{x})
	all.elem = onnxgraph.Int64
	o.out(0, "Gather", []int64{int64(len(axes))}, []*value{all, o.ints(axes...)}).elem = onnxgraph.Int64
}

// flatten converts Flatten: to a matrix, whose rows are the dimensions before an axis.
func flatten(o *op) {
	x := o.in[0]
	axis := o.integer("axis", 1)
	if x.dims != nil {
		axis = int64(o.axis("argument 'axis'", axis, len(x.dims), len(x.dims)))
	}
	dims := sizes(2)
	if x.dims != nil && o.err == nil {
		dims = []int64{product(x.dims[:axis]), product(x.dims[axis:])}
	}
	o.out(0, "Flatten", dims, o.in, onnxgraph.IntAttr("axis", axis))
}

// flattenToVec converts FlattenToVec.
func flattenToVec(o *op) {
	dims := []int64{-1}
	if o.in[0].dims != nil {
		dims[0] = product(o.in[0].dims)
	}
	o.out(0, "Reshape", dims, []*value{o.in[0], o.ints(-1)})
}

// resizeLike converts ResizeLike: a reshape to the shape of the second input.
func resizeLike(o *op) {
	like := o.in[1]
	shape := o.temp("Shape", []int64{-1}, []*value{like})
	shape.elem = onnxgraph.Int64
	o.out(0, "Reshape", like.dims, []*value{o.in[0], shape})
}

// transpose converts Transpose. Without axes it reverses the dimensions.
func transpose(o *op) {
	axes := o.integers("axes")
	rank := o.rank(o.in[0])
	if o.err != nil {
		return
	}
	if axes == nil {
		for k := range rank {
			axes = append(axes, int64(rank-1-k))
		}
	}
	o.transposed(axes)
}

// permuted converts NCHW2NHWC and NHWC2NCHW, with images of any number of dimensions: toLast moves the channels behind the others, else in front of them.
func permuted(toLast bool) func(o *op) {
	return func(o *op) {
		rank := o.rank(o.in[0])
		if o.err == nil && rank < 3 {
			o.invalid("blob '%s' has shape %s, expected images", o.def.Inputs[0], shapeText(o.in[0].dims))
		}
		if o.err != nil {
			return
		}
		axes := []int64{0}
		if !toLast {
			axes = append(axes, int64(rank-1))
		}
		for k := 1; k < rank-1; k++ {
			if toLast {
				axes = append(axes, int64(k+1))
			} else {
				axes = append(axes, int64(k))
			}
		}
		if toLast {
			axes = append(axes, 1)
		}
		o.transposed(axes)
	}
}

// transposed makes output 0 the first input with its dimensions in another order.
func (o *op) transposed(axes []int64) {
	x := o.in[0]
	sorted := slices.Sorted(slices.Values(axes))
	for k := range len(x.dims) {
		if len(sorted) != len(x.dims) || sorted[k] != int64(k) {
			o.invalid("argument 'axes' is %s, expected the numbers of %d dimensions", shapeText(axes), len(x.dims))
			return
		}
	}
	dims := []int64{}
	for _, k := range axes {
		dims = append(dims, x.dims[k])
	}
	o.out(0, "Transpose", dims, o.in, onnxgraph.IntsAttr("perm", axes...))
}

// squeeze converts Squeeze.
func squeeze(o *op) {
	x, axes := o.in[0], o.axesOf("dims", o.rank(o.in[0]))
	if o.err != nil {
		return
	}
	dims := []int64{}
	for k, d := range x.dims {
		if !slices.Contains(axes, int64(k)) {
			dims = append(dims, d)
			continue
		}
		o.expect(x, k, 1, "because Squeeze removes it")
	}
	o.out(0, "Squeeze", dims, []*value{x, o.ints(axes...)})
}

// expandDims converts ExpandDims. The argument dims has the positions in the result.
func expandDims(o *op) {
	x := o.in[0]
	axes := o.axesOf("dims", o.rank(x)+len(o.integers("dims")))
	if o.err != nil {
		return
	}
	dims := slices.Clone(x.dims)
	for _, k := range axes {
		dims = slices.Insert(dims, int(k), 1)
	}
	o.out(0, "Unsqueeze", dims, []*value{x, o.ints(axes...)})
}

// axesOf returns an argument that lists different dimensions, sorted.
func (o *op) axesOf(name string, rank int) []int64 {
	list := o.integers(name)
	if len(list) == 0 {
		o.invalid("it has no argument '%s'", name)
	}
	for i, a := range list {
		list[i] = int64(o.axis("argument '"+name+"'", a, rank, rank-1))
	}
	slices.Sort(list)
	if len(slices.Compact(slices.Clone(list))) != len(list) {
		o.invalid("argument '%s' names a dimension twice", name)
	}
	return list
}

// channelAxis returns the argument axis, by default the channels.
func (o *op) channelAxis(rank int) int {
	if !o.has("axis") {
		o.channelsFirst()
	}
	return o.axisArg("axis", 1, rank)
}

// concat converts Concat. Its second output has the size of each input along the axis.
func concat(o *op) {
	rank := o.rank(o.in[0])
	stack := o.flag("add_axis")
	if stack {
		rank++
	}
	axis := o.channelAxis(rank)
	for i, v := range o.in {
		if o.rank(v) != len(o.in[0].dims) {
			o.invalid("input %d has shape %s, expected %d dimensions", i, shapeText(v.dims), len(o.in[0].dims))
		}
	}
	if o.err != nil {
		return
	}
	parts := slices.Clone(o.in)
	if stack {
		for i, v := range parts {
			parts[i] = o.unsqueezed(v, axis, 1)
		}
	}
	dims := slices.Clone(parts[0].dims)
	for i, v := range parts[1:] {
		for k, d := range v.dims {
			switch {
			case k == axis && (d < 0 || dims[k] < 0):
				dims[k] = -1
			case k == axis:
				dims[k] += d
			case dims[k] < 0:
				dims[k] = d
			case d >= 0 && d != dims[k]:
				o.invalid("input %d has shape %s, expected dimension %d to be %d", i+1, shapeText(o.in[i+1].dims), k, dims[k])
			}
		}
	}
	o.out(0, "Concat", dims, parts, onnxgraph.IntAttr("axis", int64(axis)))
	if len(o.def.Outputs) > 1 {
		var lengths []*value
		for _, v := range parts {
			lengths = append(lengths, o.shapeOf(v, axis, axis+1))
		}
		all := o.temp("Concat", []int64{int64(len(parts))}, lengths, onnxgraph.IntAttr("axis", 0))
		o.out(1, "Cast", all.dims, []*value{all}, onnxgraph.IntAttr("to", int64(onnxgraph.Int32))).elem = onnxgraph.Int32
	}
}

// split converts Split: into equal parts, or those of the argument or the second input.
func split(o *op) {
	x, n := o.in[0], len(o.def.Outputs)
	axis, remove := o.channelAxis(o.rank(x)), o.flag("add_axis")
	lengths, in := o.lengths("split"), []*value{x}
	switch {
	case o.err != nil:
		return
	case lengths == nil && len(o.in) == 2:
		lengths = o.in[1].ints
		in = append(in, o.asInt64(o.in[1]))
	case lengths != nil:
		in = append(in, o.ints(lengths...))
	}
	size := x.dims[axis]
	total := int64(0)
	for _, d := range lengths {
		if total += d; d < 0 || d > maxFilled {
			total = math.MinInt64 / 2
		}
	}
	switch {
	case lengths != nil && (len(lengths) != n || total < 0 || size >= 0 && total != size):
		o.invalid("it splits dimension %d of shape %s into %d outputs of %s", axis, shapeText(x.dims), n, shapeText(lengths))
	case len(in) == 1 && size >= 0 && size%int64(n) != 0:
		o.invalid("it splits dimension %d of shape %s into %d equal outputs", axis, shapeText(x.dims), n)
	}
	if o.err != nil {
		return
	}
	parts := make([]*value, n)
	for i := range parts {
		dims := slices.Clone(x.dims)
		switch {
		case lengths != nil:
			dims[axis] = lengths[i]
		case len(in) == 1 && size >= 0:
			dims[axis] = size / int64(n)
		default:
			dims[axis] = -1
		}
		if remove {
			parts[i] = &value{name: o.c.newName(o.def.Outputs[i]), elem: x.elem, dims: dims}
		} else {
			parts[i] = o.result(i, x.elem, dims)
		}
	}
	o.node("Split", in, parts, onnxgraph.IntAttr("axis", int64(axis)))
	if !remove {
		return
	}
	for i, p := range parts {
		o.expect(p, axis, 1, "because 'add_axis' removes it")
		o.out(i, "Squeeze", slices.Delete(slices.Clone(p.dims), axis, axis+1), []*value{p, o.ints(int64(axis))})
	}
}

// lengths returns an argument with a list that may have as many elements as the operator has outputs.
func (o *op) lengths(name string) []int64 {
	a := o.arg(name)
	if a == nil {
		return nil
	}
	if a.Ints.Len() != len(o.def.Outputs) {
		o.invalid("argument '%s' has %d elements, expected one for each of %d outputs", name, a.Ints.Len(), len(o.def.Outputs))
		return nil
	}
	return slices.Collect(a.Ints.All())
}

// sliced converts Slice. Its ends are exclusive; a negative one counts from one behind the end.
func sliced(o *op) {
	x := o.in[0]
	starts, ends := o.integers("starts"), o.integers("ends")
	if len(o.in) == 3 {
		starts, ends = o.in[1].ints, o.in[2].ints
		if starts == nil || ends == nil {
			o.refuse("its starts and ends are computed, expected constants")
		}
	} else if len(o.in) == 2 {
		o.invalid("it has 2 inputs, expected 1 or 3")
	}
	rank := o.rank(x)
	if o.err == nil && (len(starts) != len(ends) || len(starts) > rank || len(starts) == 0) {
		o.invalid("it has starts %s and ends %s for shape %s", shapeText(starts), shapeText(ends), shapeText(x.dims))
	}
	if o.err != nil {
		return
	}
	starts, ends = slices.Clone(starts), slices.Clone(ends)
	dims, axes := slices.Clone(x.dims), []int64{}
	for k := range starts {
		starts[k], ends[k] = fromEnd(starts[k]), fromEnd(ends[k])
		axes = append(axes, int64(k))
		if d := dims[k]; d >= 0 {
			first, last := position(starts[k], d), position(ends[k], d)
			if last < first {
				o.invalid("it slices dimension %d of shape %s from %d to %d", k, shapeText(x.dims), first, last)
			}
			dims[k] = last - first
		} else if starts[k] != 0 || ends[k] != math.MaxInt64 {
			dims[k] = -1
		}
	}
	o.out(0, "Slice", dims, []*value{x, o.ints(starts...), o.ints(ends...), o.ints(axes...)})
}

// fromEnd converts a negative position, which in Caffe2 counts from one behind the end and in ONNX from the end.
func fromEnd(p int64) int64 {
	switch {
	case p == -1:
		return math.MaxInt64
	case p < 0:
		return p + 1
	}
	return p
}

// position returns a position of ONNX within a dimension.
func position(p, size int64) int64 {
	if p < 0 {
		p += size
	}
	return min(max(p, 0), size)
}

// gather converts Gather.
func gather(o *op) {
	o.flag("wrap_indices") // with it or not, negative indices count from the end
	if o.flag("match_outer") {
		o.refuse("argument 'match_outer' is not supported")
	}
	x, indices := o.in[0], o.in[1]
	rank := o.rank(x)
	axis := o.axisArg("axis", 0, rank)
	if o.err != nil {
		return
	}
	var dims []int64
	if indices.dims != nil {
		dims = join(x.dims[:axis], indices.dims, x.dims[axis+1:])
	}
	o.out(0, "Gather", dims, []*value{x, indices}, onnxgraph.IntAttr("axis", int64(axis)))
}

// tile converts Tile.
func tile(o *op) {
	x := o.in[0]
	rank := o.rank(x)
	tiles, axis := o.integer("tiles", 1), o.axisArg("axis", 0, rank)
	if tiles < 0 || tiles > maxWindow {
		o.invalid("argument 'tiles' is %d, expected 0 to %d", tiles, maxWindow)
	}
	if o.err != nil {
		return
	}
	repeats, dims := ones(rank), slices.Clone(x.dims)
	repeats[axis] = tiles
	if dims[axis] >= 0 {
		dims[axis] *= tiles
	}
	o.out(0, "Tile", dims, []*value{x, o.ints(repeats...)})
}

// channelShuffle converts ChannelShuffle: channels in groups, with the groups last.
func channelShuffle(o *op) {
	o.channelsFirst()
	x, group := o.in[0], o.integer("group", 1)
	rank := o.grouped(group)
	if o.err != nil {
		return
	}
	y := o.temp("Reshape", []int64{x.dims[0], group, x.dims[1] / group, -1}, []*value{x, o.ints(0, group, x.dims[1]/group, -1)})
	y = o.temp("Transpose", []int64{x.dims[0], x.dims[1] / group, group, -1}, []*value{y}, onnxgraph.IntsAttr("perm", 0, 2, 1, 3))
	o.out(0, "Reshape", x.dims, []*value{y, o.shapeOf(x, 0, rank)})
}

// grouped returns the number of dimensions of the first input, images whose channels are in groups.
func (o *op) grouped(group int64) int {
	x := o.in[0]
	rank := o.rank(x)
	switch {
	case o.err != nil:
	case rank >= 3 && x.dims[1] < 0:
		o.refuse("blob '%s' has shape %s, expected a fixed number of channels: declare them in the configuration", o.def.Inputs[0], shapeText(x.dims))
	case rank < 3 || group < 1 || x.dims[1]%group != 0:
		o.invalid("blob '%s' has shape %s, expected channels in %d groups", o.def.Inputs[0], shapeText(x.dims), group)
	}
	return rank
}

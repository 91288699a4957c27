package convert

import "github.com/tutti-server/tutti/backends/caffe2/onnxgraph"

// spatialBN converts SpatialBN of a net that is not trained.
func spatialBN(o *op) {
	o.channelsFirst()
	o.number("momentum", 0)
	o.integer("num_batches", 1)
	o.tested()
	x := o.in[0]
	if rank := o.rank(x); rank == 0 || rank == 1 {
		o.invalid("blob '%s' has shape %s, expected channels", o.def.Inputs[0], shapeText(x.dims))
	}
	if o.err != nil {
		return
	}
	for _, v := range o.in[1:] {
		o.expect(v, 0, x.dims[1], "the number of channels")
	}
	o.out(0, "BatchNormalization", x.dims, o.in, onnxgraph.FloatAttr("epsilon", o.number("epsilon", 1e-5)))
}

// lrn converts LRN: a normalization over neighbouring channels.
func lrn(o *op) {
	o.channelsFirst()
	size := o.integer("size", 0)
	if size < 1 || size > maxWindow || size%2 == 0 {
		o.invalid("argument 'size' is %d, expected an odd number", size)
	}
	if rank := o.rank(o.in[0]); o.err == nil && rank != 4 {
		o.invalid("blob '%s' has shape %s, expected images", o.def.Inputs[0], shapeText(o.in[0].dims))
	}
	o.out(0, "LRN", o.in[0].dims, o.in, onnxgraph.IntAttr("size", size), onnxgraph.FloatAttr("alpha", o.number("alpha", 0)),
		onnxgraph.FloatAttr("beta", o.number("beta", 0)), onnxgraph.FloatAttr("bias", o.number("bias", 1)))
}

// instanceNorm converts InstanceNorm.
func instanceNorm(o *op) {
	o.channelsFirst()
	if rank := o.rank(o.in[0]); o.err == nil && rank < 3 {
		o.invalid("blob '%s' has shape %s, expected images", o.def.Inputs[0], shapeText(o.in[0].dims))
	}
	o.out(0, "InstanceNormalization", o.in[0].dims, o.in, onnxgraph.FloatAttr("epsilon", o.number("epsilon", 1e-5)))
}

// layerNorm converts LayerNorm: over the dimensions from an axis on. Its other outputs are the mean and the standard deviation.
func layerNorm(o *op) {
	x := o.in[0]
	rank := o.rank(x)
	axis := o.axisArg("axis", 1, rank)
	affine := o.flag("elementwise_affine")
	if affine != (len(o.in) == 3) {
		o.invalid("it has %d inputs, expected 1, or 3 with the argument 'elementwise_affine'", len(o.in))
	}
	epsilon := o.number("epsilon", 1e-5)
	if o.err != nil {
		return
	}
	mean, deviation, y := o.moments(x, axis, epsilon)
	if affine {
		y = o.temp("Mul", x.dims, []*value{y, o.in[1]})
		y = o.temp("Add", x.dims, []*value{y, o.in[2]})
	}
	o.out(0, "Identity", x.dims, []*value{y})
	for i, v := range []*value{mean, deviation} {
		if len(o.def.Outputs) > i+1 {
			o.out(i+1, "Reshape", join(x.dims[:axis], []int64{1}), []*value{v, o.shapeWith(x, axis, 1)})
		}
	}
}

// moments returns the mean and the standard deviation over the dimensions from axis on, and x less its mean and divided by the deviation.
func (o *op) moments(x *value, axis int, epsilon float32) (mean, deviation, y *value) {
	var axes []int64
	for k := axis; k < len(x.dims); k++ {
		axes = append(axes, int64(k))
	}
	dims := join(x.dims[:axis], ones(len(axes)))
	average := func(v *value) *value {
		return o.temp("ReduceMean", dims, []*value{v}, onnxgraph.IntsAttr("axes", axes...))
	}
	mean = average(x)
	centred := o.temp("Sub", x.dims, []*value{x, mean})
	variance := average(o.temp("Mul", x.dims, []*value{centred, centred}))
	deviation = o.temp("Sqrt", dims, []*value{o.temp("Add", dims, []*value{variance, o.scalar(x, epsilon)})})
	return mean, deviation, o.temp("Div", x.dims, []*value{centred, deviation})
}

// groupNorm converts GroupNorm: over the channels of a group and the images.
func groupNorm(o *op) {
	o.channelsFirst()
	x, group, epsilon := o.in[0], o.integer("group", 32), o.number("epsilon", 1e-5)
	rank := o.grouped(group)
	if o.err != nil {
		return
	}
	grouped := o.temp("Reshape", []int64{x.dims[0], group, -1}, []*value{x, o.ints(0, group, -1)})
	_, _, y := o.moments(grouped, 2, epsilon)
	y = o.temp("Reshape", x.dims, []*value{y, o.shapeOf(x, 0, rank)})
	y = o.temp("Mul", x.dims, []*value{y, o.perChannel(o.in[1], rank)})
	o.out(0, "Add", x.dims, []*value{y, o.perChannel(o.in[2], rank)})
}

// affineChannel converts AffineChannel: a scale and a bias for each channel.
func affineChannel(o *op) {
	o.channelsFirst()
	x := o.in[0]
	rank := o.rank(x)
	if o.err == nil && rank < 2 {
		o.invalid("blob '%s' has shape %s, expected channels", o.def.Inputs[0], shapeText(x.dims))
	}
	if o.err != nil {
		return
	}
	y := o.temp("Mul", x.dims, []*value{x, o.perChannel(o.in[1], rank)})
	o.out(0, "Add", x.dims, []*value{y, o.perChannel(o.in[2], rank)})
}

// perChannel returns one number for each channel in a shape that is broadcast to tensors of that many dimensions, with channels second.
func (o *op) perChannel(v *value, rank int) *value {
	if o.rank(v) != 1 {
		o.invalid("blob '%s' has shape %s, expected one dimension", o.blobOf(v), shapeText(v.dims))
		return v
	}
	return o.unsqueezed(v, 1, rank-2)
}

// normalize converts Normalize: division by the Euclidean length along an axis.
func normalize(o *op) {
	x := o.in[0]
	axis := o.axisArg("axis", -1, o.rank(x))
	if o.err != nil {
		return
	}
	dims := join(x.dims[:axis], ones(1), x.dims[axis+1:])
	length := o.temp("ReduceL2", dims, []*value{x}, onnxgraph.IntsAttr("axes", int64(axis)))
	length = o.temp("Max", dims, []*value{length, o.scalar(x, 1e-12)})
	o.out(0, "Div", x.dims, []*value{x, length})
}

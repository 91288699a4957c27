package convert

import (
	"slices"

	"github.com/tutti-server/tutti/backends/caffe2/onnxgraph"
)

// The values of the argument legacy_pad: LegacyPadding of caffe2_legacy.proto.
const (
	padNotSet = 0 // the arguments of padding
	padValid  = 1 // none
	padSame   = 2 // as much as the output needs to be the input divided by the stride
	padCaffe  = 3 // that of the first Caffe, which rounds the size of the output up
)

// window has the arguments of convolutions and pools.
type window struct {
	kernel, stride, dilation []int64
	pads                     []int64 // in front of each dimension, then behind each
	legacy                   int64
}

// maxWindow is the largest value of an argument of a window.
const maxWindow = 1 << 20

// perDimension returns an argument with a value for each dimension, in one of its three forms: NAMEs, or NAME for two dimensions, or
// NAME_h and NAME_w. Nil: it has none.
func (o *op) perDimension(name, plural string, parts ...string) []int64 {
	out := o.integers(plural)
	switch n := len(parts); {
	case o.has(name):
		for v := o.integer(name, 0); len(out) < n; {
			out = append(out, v)
		}
	case n == countHas(o, parts):
		for _, part := range parts {
			out = append(out, o.integer(part, 0))
		}
	}
	return out
}

// countHas returns how many of the arguments there are.
func countHas(o *op, names []string) (n int) {
	for _, name := range names {
		if o.has(name) {
			n++
		}
	}
	return n
}

// window returns the arguments of a window over the spatial dimensions of the first input, which are those after the second.
func (o *op) window() *window {
	o.channelsFirst()
	w := &window{
		kernel:   o.perDimension("kernel", "kernels", "kernel_h", "kernel_w"),
		stride:   o.perDimension("stride", "strides", "stride_h", "stride_w"),
		dilation: o.perDimension("dilation", "dilations", "dilation_h", "dilation_w"),
		pads:     o.perDimension("pad", "pads", "pad_t", "pad_l", "pad_b", "pad_r"),
		legacy:   o.integer("legacy_pad", padNotSet),
	}
	n := len(w.kernel)
	if n == 0 {
		o.invalid("it has no argument 'kernel', 'kernels', or 'kernel_h' and 'kernel_w'")
		return w
	}
	if w.stride == nil {
		w.stride = ones(n)
	}
	if w.dilation == nil {
		w.dilation = ones(n)
	}
	if w.pads == nil {
		w.pads = make([]int64, 2*n)
	}
	for _, l := range []struct {
		name  string
		list  []int64
		n     int
		least int64
	}{{"kernel", w.kernel, n, 1}, {"stride", w.stride, n, 1}, {"dilation", w.dilation, n, 1}, {"pad", w.pads, 2 * n, 0}} {
		if len(l.list) != l.n {
			o.invalid("argument '%s' has %d values, expected %d for %d dimensions", l.name, len(l.list), l.n, n)
		}
		for _, v := range l.list {
			if v < l.least || v > maxWindow {
				o.invalid("argument '%s' is %d, expected %d to %d", l.name, v, l.least, maxWindow)
			}
		}
	}
	if rank := o.rank(o.in[0]); o.err == nil && rank != n+2 {
		o.invalid("blob '%s' has shape %s, expected %d dimensions for a window of %d", o.def.Inputs[0], shapeText(o.in[0].dims), n+2, n)
	}
	return w
}

// fit returns the padding as attributes of ONNX, and the spatial dimensions of the output.
func (w *window) fit(o *op, x *value) (attrs []onnxgraph.Attr, dims []int64) {
	n := len(w.kernel)
	if o.err != nil {
		return nil, nil
	}
	in, out, pads := x.dims[2:], sizes(n), slices.Clone(w.pads)
	known := !slices.Contains(in, -1)
	switch w.legacy {
	case padNotSet:
	case padValid:
		pads = make([]int64, 2*n)
	case padSame, padCaffe:
		if !known {
			return w.fitVariable(o)
		}
	default:
		o.invalid("argument 'legacy_pad' is %d, expected 0 to 3", w.legacy)
	}
	if (w.legacy == padValid || w.legacy == padSame) && slices.ContainsFunc(w.pads, func(p int64) bool { return p != 0 }) {
		o.invalid("argument 'legacy_pad' is %d, with which there must be no other padding", w.legacy)
	}
	for k, size := range in {
		if size < 0 {
			continue
		}
		switch w.legacy {
		case padSame:
			w.same(o, k, size, pads)
		case padCaffe:
			w.caffe(o, k, size, pads)
		}
		extent := w.dilation[k]*(w.kernel[k]-1) + 1
		room := size + pads[k] + pads[n+k] - extent
		if room < 0 {
			o.invalid("blob '%s' has shape %s, which is smaller than the window", o.def.Inputs[0], shapeText(x.dims))
			return nil, nil
		}
		out[k] = room/w.stride[k] + 1
	}
	return []onnxgraph.Attr{onnxgraph.IntsAttr("pads", pads...)}, out
}

// fitVariable is fit for spatial dimensions that requests choose.
func (w *window) fitVariable(o *op) ([]onnxgraph.Attr, []int64) {
	for k := range w.kernel {
		if w.stride[k] > w.kernel[k] || w.dilation[k] != 1 || w.legacy == padCaffe {
			o.refuse("argument 'legacy_pad' is %d, whose padding depends on the request: declare fixed dimensions for the inputs", w.legacy)
			return nil, nil
		}
	}
	return []onnxgraph.Attr{onnxgraph.StringAttr("auto_pad", "SAME_UPPER")}, sizes(len(w.kernel))
}

// same sets the padding of dimension k as TensorFlow's SAME does.
func (w *window) same(o *op, k int, size int64, pads []int64) {
	if w.dilation[k] != 1 {
		o.invalid("argument 'legacy_pad' is 2, with which there must be no dilation")
	}
	needed := (max(1, (size+w.stride[k]-1)/w.stride[k])-1)*w.stride[k] + w.kernel[k] - size
	if needed < -1 {
		o.refuse("a stride of %d with a kernel of %d and 'legacy_pad' 2 skips elements in front", w.stride[k], w.kernel[k])
	}
	needed = max(needed, 0)
	pads[k], pads[len(w.kernel)+k] = needed/2, needed-needed/2
}

// caffe sets the padding behind dimension k so that the size of the output is that of the first Caffe: rounded up, but no window begins
// behind the image and its padding in front.
func (w *window) caffe(o *op, k int, size int64, pads []int64) {
	if w.dilation[k] != 1 {
		o.refuse("argument 'legacy_pad' is 3 with a dilation")
	}
	head, kernel, stride := pads[k], w.kernel[k], w.stride[k]
	room := size + 2*head - kernel
	if room < 0 {
		return // the caller reports it
	}
	windows := (room+stride-1)/stride + 1
	if head > 0 && (windows-1)*stride >= size+head {
		windows--
	}
	tail := head
	if windows > room/stride+1 {
		tail = (windows-1)*stride + kernel - size - head
	}
	if tail >= kernel {
		o.refuse("a stride of %d with a kernel of %d and 'legacy_pad' 3 makes a window without elements", stride, kernel)
	}
	pads[len(w.kernel)+k] = tail
}

// attrs returns the attributes of a node besides the padding.
func (w *window) attrs() []onnxgraph.Attr {
	return []onnxgraph.Attr{
		onnxgraph.IntsAttr("kernel_shape", w.kernel...), onnxgraph.IntsAttr("strides", w.stride...), onnxgraph.IntsAttr("dilations", w.dilation...),
	}
}

// conv converts Conv.
func conv(o *op) {
	w, x, weight := o.window(), o.in[0], o.in[1]
	group := o.integer("group", 1)
	pads, spatial := w.fit(o, x)
	o.filter(w, weight, group)
	if o.err != nil {
		return
	}
	o.expect(weight, 1, perGroup(x.dims[1], group), "the channels of the input in a group")
	if len(o.in) == 3 {
		o.expect(o.in[2], 0, weight.dims[0], "the channels of the output")
	}
	dims := join([]int64{x.dims[0], weight.dims[0]}, spatial)
	o.out(0, "Conv", dims, o.in, append(append(w.attrs(), onnxgraph.IntAttr("group", group)), pads...)...)
}

// perGroup divides channels among groups; -1 if they are not known.
func perGroup(channels, group int64) int64 {
	if channels < 0 || group < 1 {
		return -1
	}
	return channels / group
}

// filter checks the weights of a convolution against its window and groups.
func (o *op) filter(w *window, weight *value, group int64) {
	if rank := o.rank(weight); o.err == nil && rank != len(w.kernel)+2 {
		o.invalid("blob '%s' has shape %s, expected %d dimensions", o.def.Inputs[1], shapeText(weight.dims), len(w.kernel)+2)
	}
	if o.err != nil {
		return
	}
	for k, size := range w.kernel {
		o.expect(weight, k+2, size, "the argument 'kernel'")
	}
	if group < 1 || weight.dims[0] >= 0 && weight.dims[0]%group != 0 {
		o.invalid("argument 'group' is %d, which does not divide the %d channels of the weights", group, weight.dims[0])
	}
}

// convTranspose converts ConvTranspose.
func convTranspose(o *op) {
	w, x, weight := o.window(), o.in[0], o.in[1]
	group := o.integer("group", 1)
	adjust := o.perDimension("adj", "adjs", "adj_h", "adj_w")
	if adjust == nil {
		adjust = make([]int64, len(w.kernel))
	}
	o.filter(w, weight, group)
	if w.legacy != padNotSet {
		o.refuse("argument 'legacy_pad' is %d, expected 0", w.legacy)
	}
	if len(w.dilation) > 0 && slices.Max(w.dilation) > 1 {
		o.refuse("a dilation is not supported")
	}
	if o.err == nil && len(adjust) != len(w.kernel) {
		o.invalid("argument 'adjs' has %d values, expected %d", len(adjust), len(w.kernel))
	}
	if o.err != nil {
		return
	}
	o.expect(weight, 0, x.dims[1], "the channels of the input")
	channels, n := int64(-1), len(w.kernel)
	if weight.dims[1] >= 0 && weight.dims[1] < maxFilled {
		channels = weight.dims[1] * group
	}
	dims := []int64{x.dims[0], channels}
	for k := range n {
		size := int64(-1)
		if adjust[k] < 0 || adjust[k] >= w.stride[k] {
			o.invalid("argument 'adj' is %d, expected less than the stride %d", adjust[k], w.stride[k])
		}
		if in := x.dims[2+k]; in > 0 {
			size = (in-1)*w.stride[k] + w.kernel[k] + adjust[k] - w.pads[k] - w.pads[n+k]
			if size < 1 {
				o.invalid("its output would have %d elements in dimension %d", size, 2+k)
			}
		}
		dims = append(dims, size)
	}
	o.out(0, "ConvTranspose", dims, o.in, append(w.attrs(), onnxgraph.IntAttr("group", group), onnxgraph.IntsAttr("pads", w.pads...),
		onnxgraph.IntsAttr("output_padding", adjust...))...)
}

// pool converts MaxPool or AveragePool, as kind says.
func pool(kind string) func(o *op) {
	return func(o *op) {
		x := o.in[0]
		if o.flag("global_pooling") {
			o.globalPool(kind)
			return
		}
		w := o.window()
		pads, spatial := w.fit(o, x)
		if o.err != nil {
			return
		}
		if slices.Max(w.dilation) > 1 {
			o.invalid("it has a dilation, which pools of Caffe2 do not have")
		}
		attrs := slices.Concat(w.attrs()[:2], pads)
		if kind == "AveragePool" && o.flag("count_include_pad") {
			attrs = append(attrs, onnxgraph.IntAttr("count_include_pad", 1))
		}
		for k, size := range w.kernel {
			if w.pads[k] >= size || w.pads[len(w.kernel)+k] >= size {
				o.refuse("argument 'pad' is %d and %d with a kernel of %d, which makes windows without elements",
					w.pads[k], w.pads[len(w.kernel)+k], size)
			}
		}
		o.out(0, kind, join(x.dims[:2], spatial), o.in, attrs...)
	}
}

// globalPool converts a pool over whole images.
func (o *op) globalPool(kind string) {
	o.channelsFirst()
	x := o.in[0]
	for _, name := range []string{"kernel", "kernels", "kernel_h", "kernel_w", "count_include_pad"} {
		o.has(name) // not used
	}
	for _, name := range []string{"stride", "stride_h", "stride_w", "dilation", "dilation_h", "dilation_w"} {
		if o.integer(name, 1) != 1 {
			o.invalid("argument '%s' is not 1, expected so with 'global_pooling'", name)
		}
	}
	for _, name := range []string{"pad", "pad_t", "pad_l", "pad_b", "pad_r", "legacy_pad"} {
		if o.integer(name, 0) != 0 {
			o.invalid("argument '%s' is not 0, expected so with 'global_pooling'", name)
		}
	}
	if rank := o.rank(x); o.err == nil && rank < 3 {
		o.invalid("blob '%s' has shape %s, expected images", o.def.Inputs[0], shapeText(x.dims))
	}
	if o.err == nil {
		o.out(0, "Global"+kind, join(x.dims[:2], ones(len(x.dims)-2)), o.in)
	}
}

// padImage converts PadImage.
func padImage(o *op) {
	o.channelsFirst()
	x := o.in[0]
	pads := o.perDimension("pad", "pads", "pad_t", "pad_l", "pad_b", "pad_r")
	mode := o.text("mode", "constant")
	if !slices.Contains([]string{"constant", "reflect", "edge"}, mode) {
		o.invalid("argument 'mode' is %.20q, expected constant, reflect or edge", mode)
	}
	if o.rank(x) != 4 || len(pads) != 4 || slices.Min(pads) < 0 || slices.Max(pads) > maxWindow {
		o.invalid("it pads shape %s by %s, expected 4 dimensions and 4 pads", shapeText(x.dims), shapeText(pads))
	}
	filler := o.number("value", 0)
	if o.err != nil {
		return
	}
	dims := slices.Clone(x.dims)
	for k := range 2 {
		if dims[2+k] >= 0 {
			dims[2+k] += pads[k] + pads[2+k]
		}
	}
	all := o.ints(0, 0, pads[0], pads[1], 0, 0, pads[2], pads[3])
	o.out(0, "Pad", dims, []*value{x, all, o.scalar(x, filler)}, onnxgraph.StringAttr("mode", mode))
}

// resize converts ResizeNearest and UpsampleBilinear, whose corners are aligned.
func resize(mode string) func(o *op) {
	return func(o *op) {
		o.channelsFirst()
		x := o.in[0]
		height, width := o.number("height_scale", 1), o.number("width_scale", 1)
		if !(height > 0 && width > 0 && height < maxWindow && width < maxWindow) {
			o.invalid("its scales are %v and %v, expected positive numbers", height, width)
		}
		if rank := o.rank(x); o.err == nil && rank != 4 {
			o.invalid("blob '%s' has shape %s, expected images", o.def.Inputs[0], shapeText(x.dims))
		}
		if o.err != nil {
			return
		}
		dims := slices.Clone(x.dims)
		for k, s := range []float32{height, width} {
			if dims[2+k] >= 0 {
				dims[2+k] = int64(float32(dims[2+k]) * s)
			}
		}
		factors := &value{name: o.c.newName(o.def.Outputs[0]), elem: onnxgraph.Float, dims: []int64{4}}
		var raw []byte
		for _, s := range []float32{1, 1, height, width} {
			raw = appendFloat(raw, onnxgraph.Float, s)
		}
		factors.fill = &fill{raw: raw}
		attrs := []onnxgraph.Attr{onnxgraph.StringAttr("mode", mode)}
		if mode == "nearest" {
			attrs = append(attrs, onnxgraph.StringAttr("coordinate_transformation_mode", "asymmetric"), onnxgraph.StringAttr("nearest_mode", "floor"))
		} else {
			attrs = append(attrs, onnxgraph.StringAttr("coordinate_transformation_mode", "align_corners"))
		}
		o.out(0, "Resize", dims, []*value{x, nil, factors}, attrs...)
	}
}

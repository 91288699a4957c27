package convert

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/backends/caffe2/netdef"
	"github.com/tutti-server/tutti/backends/caffe2/onnxgraph"
	"github.com/tutti-server/tutti/core/status"
)

// op is an operator under conversion. The first error is kept in err, and the methods then return values that are safe to use, so that a
// conversion need not check each of them.
type op struct {
	c     *converter
	def   *netdef.Operator
	net   string // "init net" or "predict net"
	index int
	in    []*value
	outs  []*value
	read  map[string]bool // arguments
	nodes int
	err   error
}

// neutral are arguments that change no result: how a device computes, and what only training or other layouts use.
var neutral = []string{
	"cudnn_exhaustive_search", "exhaustive_search", "ws_nbytes_limit", "shared_ws_nbytes_limit", "deterministic", "init_params", "use_cudnn",
	"shared_buffer", "convolution_transform_strategy", "order", "is_test", "enable_tensor_core", "float16_compute", "debug_info",
}

// convert converts the operator: it appends nodes to the graph and sets the blobs that it writes.
func (o *op) convert() error {
	r, ok := operators()[o.def.Type]
	switch {
	case strings.HasPrefix(o.def.Type, "Int8"):
		return o.errorf(status.Unsupported, "quantized operators are not supported: export the net in 32 bit floats")
	case random[o.def.Type]:
		return o.errorf(status.Unsupported, "it fills a blob with random numbers, which is for training: expected the trained weights, as GivenTensorFill")
	case !ok:
		return o.errorf(status.Unsupported, "the operator is not supported%s", similar(o.def.Type))
	}
	if n := len(o.def.Inputs); n < r.ins || n > r.mostIns {
		return o.errorf(status.InvalidArg, "it has %d inputs, expected %s", n, span(r.ins, r.mostIns))
	}
	if n := len(o.def.Outputs); n < 1 || n > r.outs {
		return o.errorf(status.InvalidArg, "it has %d outputs, expected %s", n, span(1, r.outs))
	}
	for i, name := range o.def.Outputs {
		if name == "" || slices.Contains(o.def.Outputs[:i], name) {
			return o.errorf(status.InvalidArg, "its output %d is '%s', expected a name that no other output has", i, name)
		}
	}
	for _, name := range o.def.Inputs {
		v := o.c.blobs[name]
		switch {
		case v == nil:
			return o.errorf(status.InvalidArg, "it reads blob '%s', which no operator before it writes and which is no input of the configuration", name)
		case v.lost != "":
			return o.errorf(status.Unsupported, "it reads blob '%s', which is not computed: %s", name, v.lost)
		}
		o.in = append(o.in, v)
	}
	for i, v := range o.in {
		if first := o.in[0].elem; v.elem != first && !mixed[o.def.Type] {
			return o.errorf(status.InvalidArg, "input %d has type %s, expected that of the first, %s", i, v.elem, first)
		}
	}
	o.read, o.outs = map[string]bool{}, make([]*value, len(o.def.Outputs))
	r.convert(o)
	o.checkArguments()
	if o.err != nil {
		return o.err
	}
	for i, name := range o.def.Outputs {
		if o.outs[i] == nil {
			o.c.nameOf(name)
			o.outs[i] = &value{lost: o.label() + " has no output " + strconv.Itoa(i) + " when it is not training"}
		}
		o.c.blobs[name] = o.outs[i]
	}
	return nil
}

// span describes a number of inputs or outputs.
func span(least, most int) string {
	switch {
	case least == most:
		return strconv.Itoa(least)
	case most == many:
		return fmt.Sprintf("at least %d", least)
	}
	return fmt.Sprintf("%d to %d", least, most)
}

// similar names a supported operator whose name differs in letter case only.
func similar(kind string) string {
	for name := range operators() {
		if strings.EqualFold(name, kind) {
			return ": did you mean \"" + name + "\"?"
		}
	}
	return ""
}

// label names the operator by its position.
func (o *op) label() string {
	name := ""
	if o.def.Name != "" {
		name = fmt.Sprintf(" %.100q", o.def.Name)
	}
	return fmt.Sprintf("operator %d%s (type %.100q) of the %s", o.index, name, o.def.Type, o.net)
}

func (o *op) errorf(code status.Code, format string, args ...any) error {
	return status.Errorf(code, "%s: %w", o.label(), fmt.Errorf(format, args...))
}

// refuse keeps an error: the net asks for something that is not supported.
func (o *op) refuse(format string, args ...any) { o.fail(status.Unsupported, format, args...) }

// invalid keeps an error: the net contradicts itself or the configuration.
func (o *op) invalid(format string, args ...any) { o.fail(status.InvalidArg, format, args...) }

func (o *op) fail(code status.Code, format string, args ...any) {
	if o.err == nil {
		o.err = o.errorf(code, format, args...)
	}
}

// checkArguments refuses arguments that the conversion did not read.
func (o *op) checkArguments() {
	for i := range o.def.Args {
		if name := o.def.Args[i].Name; !o.read[name] && !slices.Contains(neutral, name) {
			o.refuse("argument '%.100s' is not supported", name)
		}
	}
}

// arg returns an argument, or nil.
func (o *op) arg(name string) *netdef.Argument {
	o.read[name] = true
	for i := range o.def.Args {
		if a := &o.def.Args[i]; a.Name == name {
			if a.Nested != "" {
				o.refuse("argument '%s' is %s, expected numbers or a string", name, a.Nested)
			}
			return a
		}
	}
	return nil
}

func (o *op) has(name string) bool { return o.arg(name) != nil }

// integer returns an argument that is an integer.
func (o *op) integer(name string, byDefault int64) int64 {
	a := o.arg(name)
	switch {
	case a == nil:
		return byDefault
	case !a.HasI:
		o.invalid("argument '%s' is no integer", name)
		return byDefault
	}
	return a.I
}

// flag returns an argument that is true or false.
func (o *op) flag(name string) bool { return o.integer(name, 0) != 0 }

// number returns an argument that is a float.
func (o *op) number(name string, byDefault float32) float32 {
	a := o.arg(name)
	switch {
	case a == nil:
		return byDefault
	case a.HasF:
		return a.F
	case a.HasI:
		return float32(a.I)
	}
	o.invalid("argument '%s' is no number", name)
	return byDefault
}

// text returns an argument that is a string.
func (o *op) text(name, byDefault string) string {
	a := o.arg(name)
	switch {
	case a == nil:
		return byDefault
	case !a.HasS || len(a.S) > 100:
		o.invalid("argument '%s' is no short string", name)
		return byDefault
	}
	return string(a.S)
}

// maxRank is the most dimensions of a tensor here, and the most elements of a list of axes, shapes or windows.
const maxRank = 32

// integers returns an argument that is a short list of integers; nil if there is none.
func (o *op) integers(name string) []int64 {
	a := o.arg(name)
	if a == nil {
		return nil
	}
	if n := a.Ints.Len(); n > maxRank {
		o.invalid("argument '%s' has %d elements, expected at most %d", name, n, maxRank)
		return nil
	}
	return slices.Collect(a.Ints.All())
}

// channelsFirst refuses the order NHWC.
func (o *op) channelsFirst() {
	switch order := o.text("order", "NCHW"); order {
	case "NCHW":
	case "NHWC":
		o.refuse("argument 'order' is NHWC, expected NCHW: export the net with channels first")
	default:
		o.invalid("argument 'order' is %.20q, expected NCHW", order)
	}
}

// node appends a node with the outputs out. Inputs that are nil are absent.
func (o *op) node(kind string, in, out []*value, attrs ...onnxgraph.Attr) {
	if o.err != nil {
		return
	}
	name := o.label()
	if o.nodes++; o.nodes > 1 {
		name += ", part " + strconv.Itoa(o.nodes)
	}
	from, to := make([]string, len(in)), make([]string, len(out))
	for i, v := range in {
		if v != nil {
			from[i] = o.c.use(v)
		}
	}
	for i, v := range out {
		to[i] = v.name
	}
	o.c.graph.Node(kind, name, from, to, attrs...)
}

// temp appends a node and returns its output, which no blob has. The output has the type of the first input.
func (o *op) temp(kind string, dims []int64, in []*value, attrs ...onnxgraph.Attr) *value {
	v := &value{name: o.c.newName(o.def.Outputs[0]), elem: in[0].elem, dims: dims}
	o.node(kind, in, []*value{v}, attrs...)
	return v
}

// result makes output i of the operator a new tensor, which the caller computes.
func (o *op) result(i int, e onnxgraph.Elem, dims []int64) *value {
	o.outs[i] = &value{name: o.c.nameOf(o.def.Outputs[i]), elem: e, dims: dims}
	return o.outs[i]
}

// out appends a node that computes output i of the operator. The output has the type of the first input.
func (o *op) out(i int, kind string, dims []int64, in []*value, attrs ...onnxgraph.Attr) *value {
	v := o.result(i, in[0].elem, dims)
	o.node(kind, in, []*value{v}, attrs...)
	return v
}

// ints returns a constant of 64 bit integers with one dimension.
func (o *op) ints(list ...int64) *value {
	return &value{
		name: o.c.newName(o.def.Outputs[0]), elem: onnxgraph.Int64, dims: []int64{int64(len(list))}, ints: append([]int64{}, list...),
		fill: &fill{ints: list},
	}
}

// scalar returns a constant without dimensions, of the type of a floating point tensor.
func (o *op) scalar(like *value, v float32) *value {
	return &value{name: o.c.newName(o.def.Outputs[0]), elem: like.elem, dims: []int64{}, fill: &fill{unit: appendFloat(nil, like.elem, v), count: 1}}
}

// Package convert turns the nets of a Caffe2 model into one ONNX model.
//
//	convert.go      both nets, blobs and their versions, inputs and outputs
//	operator.go     one operator: its inputs, arguments, outputs and errors
//	value.go        tensors of the graph, and arithmetic on their shapes
//	fill.go         constants: the operators of an init net
//	table.go        the supported operators
//	elementwise.go, window.go, matmul.go, normalize.go, shape.go, reduce.go  their conversions
//
// # Blobs
//
// A net is a list of operators, executed in order over named blobs. Operators may write a blob again, for example "Relu" in place, so each
// write makes a new tensor of the graph. The last one has the blob's name, the others that of the blob with a number.
//
// # What is exact
//
// The operators' semantics are those of Caffe2 in PyTorch 1.10, the last releases that have it. They were compared with its own results:
// testdata/operators.json.gz. An operator, or an argument, that this package does not know is refused, because ignoring it could change
// results.
package convert

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/backends/caffe2/netdef"
	"github.com/tutti-server/tutti/backends/caffe2/onnxgraph"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// Port is an input or output that the configuration of a model declares.
type Port struct {
	Name  string
	DType tensor.DType
	Dims  []int64 // with the batch dimension; -1 is variable
}

// Source is a model of Caffe2.
type Source struct {
	// Predict and Init are the serialized nets.
	Predict, Init []byte
	// Inputs are the inputs of the model, which a net does not describe. A blob that the init net fills may be one; the fill is ignored.
	Inputs []Port
	// Outputs are the wanted outputs, any blobs. Without them, the model has those of the predict net's external_output.
	Outputs []Port
	// Batched is true when the first dimension of the inputs is the batch.
	Batched bool
	// Weights receives the elements of large constants: the contents of a file named WeightsFile beside the ONNX model.
	Weights     io.Writer
	WeightsFile string
}

// ONNX returns the serialized ONNX model. Its inputs and outputs have the names of the blobs. It returns an error with the position of the
// operator, counted from 0, that cannot be converted: Unsupported if it is not known here, else InvalidArg. It returns soon after ctx is
// cancelled.
func ONNX(ctx context.Context, s *Source) ([]byte, error) {
	predict, err := parse(false, s.Predict)
	if err != nil {
		return nil, err
	}
	initial, err := parse(true, s.Init)
	if err != nil {
		return nil, err
	}
	c := &converter{
		cancelled: func() bool { return ctx.Err() != nil }, source: s, blobs: map[string]*value{}, inputs: map[string]bool{}, left: map[string]int{}, taken: map[string]bool{},
		weights: weights{to: s.Weights, file: s.WeightsFile},
	}
	if len(predict.Operators) == 0 {
		return nil, status.Errorf(status.InvalidArg, "the predict net has no operators")
	}
	c.reserve(initial, predict)
	if err := c.checkInputs(initial, predict); err != nil {
		return nil, err
	}
	for _, step := range []func() error{
		func() error { return c.run(true, initial) },
		c.declareInputs,
		func() error { return c.run(false, predict) },
		func() error { return c.declareOutputs(predict) },
		c.weights.flush,
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return c.graph.Model("caffe2"), nil
}

// ParseError is the error for a file that is no net.
type ParseError struct {
	Init bool // it is the file of the init net
	Err  error
}

// Error returns the reason.
func (e *ParseError) Error() string {
	return "unable to read the " + netName(e.Init) + ": " + e.Err.Error()
}

// Unwrap returns the error of package netdef.
func (e *ParseError) Unwrap() error { return e.Err }

func netName(initial bool) string {
	if initial {
		return "init net"
	}
	return "predict net"
}

// parse reads a net.
func parse(initial bool, data []byte) (*netdef.Net, error) {
	n, err := netdef.Parse(data)
	if err != nil {
		return nil, status.Errorf(status.InvalidArg, "%w", &ParseError{initial, err})
	}
	return n, nil
}

// converter is the state of a conversion.
type converter struct {
	cancelled func() bool
	source    *Source
	graph     onnxgraph.Builder
	weights   weights
	blobs     map[string]*value // the current version of each blob
	inputs    map[string]bool   // the names of the model's inputs
	left      map[string]int    // how often each blob is still written
	taken     map[string]bool   // names of tensors of the graph
	made      int               // number of names for tensors that no blob has
	filled    int64             // elements of the constants that ConstantFill makes
}

// reserve counts the writes of each blob, and keeps the names of all blobs for them.
func (c *converter) reserve(nets ...*netdef.Net) {
	for _, p := range c.source.Inputs {
		c.inputs[p.Name], c.taken[p.Name] = true, true
	}
	for _, n := range nets {
		for i := range n.Operators {
			for _, name := range n.Operators[i].Outputs {
				c.left[name]++
				c.taken[name] = true
			}
		}
	}
}

// checkInputs refuses an input that the predict net does not read.
func (c *converter) checkInputs(initial, predict *netdef.Net) error {
	filled, written, reads := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for i := range initial.Operators {
		for _, name := range initial.Operators[i].Outputs {
			filled[name] = true
		}
	}
	for _, name := range predict.Inputs {
		reads[name] = true
	}
	for i := range predict.Operators {
		for _, name := range predict.Operators[i].Inputs {
			reads[name] = reads[name] || !written[name]
		}
		for _, name := range predict.Operators[i].Outputs {
			written[name] = true
		}
	}
	for _, p := range c.source.Inputs {
		if !reads[p.Name] {
			maps.DeleteFunc(reads, func(name string, read bool) bool { return !read || filled[name] })
			return status.Errorf(status.InvalidArg, "unexpected inference input '%s', allowed inputs are: %s", p.Name, list(slices.Sorted(maps.Keys(reads))))
		}
	}
	return nil
}

// run converts the operators of a net.
func (c *converter) run(initial bool, n *netdef.Net) error {
	for i := range n.Operators {
		if c.cancelled() {
			return status.ErrCancelled
		}
		def := &n.Operators[i]
		overridden := func(name string) bool { return c.inputs[name] && c.blobs[name] == nil }
		if initial && len(def.Outputs) > 0 && !slices.ContainsFunc(def.Outputs, func(name string) bool { return !overridden(name) }) {
			for _, name := range def.Outputs {
				c.left[name]--
			}
			continue // requests bring these blobs
		}
		o := &op{c: c, def: def, net: netName(initial), index: i}
		if err := o.convert(); err != nil {
			return err
		}
	}
	return nil
}

// declareInputs makes the inputs of the model blobs.
func (c *converter) declareInputs() error {
	for _, p := range c.source.Inputs {
		e, ok := elemOf[p.DType]
		if !ok {
			return status.Errorf(status.Unsupported, "input '%s' has datatype %s, which Caffe2 does not have", p.Name, p.DType.ConfigName())
		}
		dims := make([]onnxgraph.Dim, len(p.Dims))
		for k, d := range p.Dims {
			dims[k] = onnxgraph.Dim{Size: d, Name: p.Name + "." + strconv.Itoa(k)}
			if k == 0 && c.source.Batched {
				dims[k].Name = "batch"
			}
		}
		c.graph.Input(p.Name, e, dims)
		c.blobs[p.Name] = &value{name: p.Name, elem: e, dims: append([]int64{}, p.Dims...)}
	}
	return nil
}

// declareOutputs makes blobs the outputs of the graph.
func (c *converter) declareOutputs(predict *netdef.Net) error {
	wanted := c.source.Outputs
	if len(wanted) == 0 {
		for _, name := range predict.Outputs {
			wanted = append(wanted, Port{Name: name})
		}
	}
	if len(wanted) == 0 {
		return status.Errorf(status.InvalidArg, "the predict net lists no external_output: declare the outputs in the configuration")
	}
	for _, p := range wanted {
		v := c.blobs[p.Name]
		switch {
		case v == nil:
			return status.Errorf(status.InvalidArg, "unexpected inference output '%s', allowed outputs are the blobs that operators write; the net's own are: %s", p.Name, list(predict.Outputs))
		case v.lost != "":
			return status.Errorf(status.Unsupported, "output '%s' is not computed: %s", p.Name, v.lost)
		}
		if err := c.declareOutput(&p, v); err != nil {
			return err
		}
	}
	return nil
}

// declareOutput makes v the output p. Dimensions that did not follow from the inputs are those of the configuration.
func (c *converter) declareOutput(p *Port, v *value) error {
	name := c.use(v)
	if c.inputs[p.Name] && name != p.Name {
		return status.Errorf(status.Unsupported, "output '%s' is also an input, and operators change it: give the output a name of its own", p.Name)
	}
	if name != p.Name { // a constant with several names
		c.graph.Node("Identity", "output "+p.Name, []string{name}, []string{p.Name})
	}
	merged := v.dims
	if merged == nil {
		merged = p.Dims
	}
	var dims []onnxgraph.Dim
	for k, d := range merged {
		if d < 0 && len(p.Dims) == len(merged) {
			d = p.Dims[k]
		}
		dims = append(dims, onnxgraph.Dim{Size: d})
	}
	if merged != nil && dims == nil {
		dims = []onnxgraph.Dim{} // a scalar
	}
	c.graph.Output(p.Name, v.elem, dims)
	return nil
}

// list returns at most ten names, for errors.
func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	text := "'" + strings.Join(names[:min(len(names), 10)], "', '") + "'"
	if len(names) > 10 {
		text += fmt.Sprintf(" and %d more", len(names)-10)
	}
	return text
}

// newName returns an unused name for a tensor of the graph, which begins with base.
func (c *converter) newName(base string) string {
	for {
		c.made++
		name := base + "." + strconv.Itoa(c.made)
		if !c.taken[name] {
			c.taken[name] = true
			return name
		}
	}
}

// nameOf returns the name of the tensor that the next write of a blob makes.
func (c *converter) nameOf(blob string) string {
	c.left[blob]--
	if c.left[blob] == 0 && !c.inputs[blob] {
		return blob
	}
	return c.newName(blob)
}

// elemOf has ONNX's types of data types.
var elemOf = map[tensor.DType]onnxgraph.Elem{
	tensor.Bool: onnxgraph.Bool, tensor.Uint8: onnxgraph.Uint8, tensor.Int8: onnxgraph.Int8, tensor.Uint16: onnxgraph.Uint16,
	tensor.Int16: onnxgraph.Int16, tensor.Int32: onnxgraph.Int32, tensor.Int64: onnxgraph.Int64, tensor.Bytes: onnxgraph.String,
	tensor.FP16: onnxgraph.Float16, tensor.FP32: onnxgraph.Float, tensor.FP64: onnxgraph.Double,
}

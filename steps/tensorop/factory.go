// Package tensorop holds the step "tensor", which computes with tensors of numbers and
// moves the elements of tensors of any type, and the step "constant".
//
// The operations have numpy's names and meaning. An operation treats each row of a batch
// separately: axes do not count the batch dimension. For example, axis 0 of an input
// declared as dims [3, 5] is the axis of 3 elements, with or without max_batch_size.
package tensorop

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
)

// NewFactory returns the step "tensor".
//
// Inputs are those that config.pbtxt declares, by default INPUT of FP32 [-1]. They have up to 8 dimensions, the batch
// dimension among them. The output OUTPUT, or the outputs of split, follow from them. FP16 and BF16 are computed as
// FP32 and rounded. A number that an operation cannot process (division of an integer by zero, an index outside, a cast
// that does not fit) fails the request of its row. Shapes that do not fit together fail the load where config.pbtxt has
// them, else the batch.
func NewFactory() steps.Factory {
	return steps.Factory{
		Name: "tensor",
		Doc: "Computes with tensors and moves their elements. Operations have numpy's names and meaning; axes do not count the batch dimension. " +
			"On numbers: arithmetic, comparison and reduction. Two operands are broadcast and must have the same type (cast one before); the second may be the parameter `value`. " +
			"divide of integers gives FP64; floor_divide, remainder and power keep the type, and integers wrap around. sum and prod of integers give INT64 or UINT64, mean gives FP64. " +
			"On any type: reshape, transpose, slice, concat, stack, split, gather, where, pad, equal and other comparisons. " +
			"cast wraps integers around and truncates fractions; a floating-point number outside of the integers' range fails its row unless `overflow` says otherwise. It also converts from and to text.",
		Params: []steps.Param{
			{Key: "op", Doc: "The operation.", Required: true, Values: names()},
			{Key: "dtype", Doc: "cast, one_hot: the type of the output (FP32, INT64, ...)."},
			{Key: "overflow", Doc: "cast: wrap as described above (the default), saturate to the nearest number, or refuse every row with a number that does not fit."},
			{Key: "dims", Doc: "reshape: the dims of a row; one may be -1, which is computed from the others."},
			{Key: "axis", Doc: "concat, stack, split, gather: the axis, 0 by default. argmax, argmin: the last by default."},
			{Key: "axes", Doc: "transpose: the axes in their new order, reversed by default. sum and other reductions: the axes to reduce, all by default."},
			{Key: "keep_dims", Doc: "Reductions: whether the reduced axes stay, with extent 1."},
			{Key: "slice", Doc: "slice: the slice of each axis in numpy's notation, for example `1:-1, ::2, ..., 0`."},
			{Key: "sizes", Doc: "split: the extent of each output, or the number of equal outputs."},
			{Key: "indices", Doc: "gather: the indices, where they are not the second input. Negative ones count from the end."},
			{Key: "pads", Doc: "pad: the elements added before and after each axis: `before0, after0, before1, ...`."},
			{Key: "mode", Doc: "pad: constant (the default), edge or reflect."},
			{Key: "value", Doc: "The second operand of arithmetic and comparison, or the element that pad adds (0 or an empty text by default)."},
			{Key: "swap", Doc: "Whether the value is the first operand instead of the second."},
			{Key: "low", Doc: "clip: the least number."},
			{Key: "high", Doc: "clip: the greatest number."},
			{Key: "depth", Doc: "one_hot: the extent of the new last axis."},
		},
		Examples: []steps.Example{
			{
				Config: steps.ExampleConfig(`max_batch_size: 8
input [ { name: "IMAGE" data_type: TYPE_UINT8 dims: [ 2, 2, 3 ] } ]`, "tensor", "op", "transpose", "axes", "2, 0, 1"),
				Request: `{"inputs": [{"name": "IMAGE", "datatype": "UINT8", "shape": [1, 2, 2, 3], "data": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]}]}`,
			},
			{
				Config: steps.ExampleConfig(`max_batch_size: 8
input [ { name: "A" data_type: TYPE_FP32 dims: [ 2, 3 ] }, { name: "B" data_type: TYPE_FP32 dims: [ 3 ] } ]
output [ { name: "SUM" data_type: TYPE_FP32 dims: [ 2, 3 ] } ]`, "tensor", "op", "add"),
				Request: `{"inputs": [
    {"name": "A", "datatype": "FP32", "shape": [1, 2, 3], "data": [1, 2, 3, 4, 5, 6]},
    {"name": "B", "datatype": "FP32", "shape": [1, 3], "data": [0.5, 0, -0.5]}]}`,
			},
			{
				Config:  steps.ExampleConfig(`input [ { name: "X" data_type: TYPE_INT32 dims: [ -1, 3 ] } ]`, "tensor", "op", "mean", "axes", "0"),
				Request: `{"inputs": [{"name": "X", "datatype": "INT32", "shape": [2, 3], "data": [1, 2, 3, 4, 5, 7]}]}`,
			},
		},
		Inline:    false,
		Signature: signature,
		New:       newStep,
	}
}

// operationsList returns every operation. Those that need the fewest parameters come first.
func operationsList() []operation {
	var list []operation
	for _, name := range unaryNames {
		list = append(list, operation{name, nil, 1, 1, makeUnary})
	}
	list = append(list, operation{"clip", []string{"low", "high"}, 1, 1, makeClip})
	for c, name := range binaryNames {
		if code(c) < and {
			list = append(list, operation{name, []string{"value", "swap"}, 1, 2, makeBinary})
		} else {
			list = append(list, operation{name, nil, 2, 2, makeBinary})
		}
	}
	for _, name := range reduceNames {
		axes := "axes"
		if strings.HasPrefix(name, "arg") {
			axes = "axis"
		}
		list = append(list, operation{name, []string{axes, "keep_dims"}, 1, 1, makeReduce})
	}
	return append(list,
		operation{"cast", []string{"dtype", "overflow"}, 1, 1, makeCast},
		operation{"reshape", []string{"dims"}, 1, 1, makeReshape},
		operation{"transpose", []string{"axes"}, 1, 1, makeTranspose},
		operation{"slice", []string{"slice"}, 1, 1, makeSlice},
		operation{"concat", []string{"axis"}, 1, 1 << 10, makeConcat},
		operation{"stack", []string{"axis"}, 1, 1 << 10, makeStack},
		operation{"split", []string{"axis", "sizes"}, 1, 1, makeSplit},
		operation{"gather", []string{"axis", "indices"}, 1, 2, makeGather},
		operation{"where", nil, 3, 3, makeWhere},
		operation{"pad", []string{"pads", "mode", "value"}, 1, 1, makePad},
		operation{"one_hot", []string{"dtype", "depth"}, 1, 1, makeOneHot})
}

func names() []string {
	var out []string
	for _, o := range operationsList() {
		out = append(out, o.name)
	}
	return out
}

func signature(s *steps.Settings) (*config.Signature, error) {
	made, err := build(s)
	if err != nil {
		return nil, err
	}
	return &config.Signature{Inputs: made.in, Outputs: made.out}, nil
}

// build makes the operation that parameter "op" names.
func build(s *steps.Settings) (*spec, error) {
	list := operationsList()
	at := slices.IndexFunc(list, func(o operation) bool { return o.name == s.Params["op"] })
	if at < 0 {
		return nil, fmt.Errorf("model '%s' names unknown operation '%s' of step 'tensor'", s.Model, s.Params["op"])
	}
	made := &spec{operation: &list[at], s: s, in: slices.Clone(s.Inputs)}
	if s.MaxBatch > 0 {
		made.batch = 1
	}
	if len(made.in) == 0 {
		made.in = []config.Port{{Name: "INPUT", DType: tensor.FP32, Dims: tensor.Of(-1)}}
	}
	if err := made.try((*spec).make); err != nil {
		return nil, err
	}
	return made, nil
}

// make builds the operation and checks its outputs.
func (s *spec) make() {
	s.check()
	s.build(s)
	if len(s.s.Outputs) > len(s.out) {
		s.refuse("%d outputs are declared, expected %d", len(s.s.Outputs), len(s.out))
	}
	for i := range s.out {
		if p := &s.out[i]; p.Dims.Rank()+s.batch > maxRank {
			s.refuse("output '%s' has %d dimensions, expected at most %d with that of the batch", p.Name, p.Dims.Rank()+s.batch, maxRank)
		}
	}
}

// check refuses inputs that no operation accepts, and parameters that this one does not have.
func (s *spec) check() {
	if n := len(s.in); n < s.least || n > s.most {
		s.refuse("%d inputs are declared, expected %d to %d", n, s.least, s.most)
	}
	for i := range s.in {
		p := &s.in[i]
		switch {
		case p.Optional:
			s.refuse("input '%s' is optional, but all are needed", p.Name)
		case p.DType == tensor.Invalid:
			s.refuse("input '%s' has no type", p.Name)
		case p.Dims.Rank()+s.batch > maxRank:
			s.refuse("input '%s' has %d dimensions, expected at most %d with that of the batch", p.Name, p.Dims.Rank()+s.batch, maxRank)
		}
	}
	for key, v := range s.s.Params {
		if v != "" && key != "op" && !slices.Contains(s.params, key) {
			s.refuse("parameter '%s' is none of this operation, expected one of: %s", key, strings.Join(s.params, ", "))
		}
	}
}

// operation is one value of parameter "op".
type operation struct {
	name string
	// params are the parameters it reads, besides "op".
	params []string
	// least and most are the limits of the number of inputs.
	least, most int
	build       func(*spec)
}

// spec is an operation while it is built: the configuration, then the outputs and the runner.
type spec struct {
	*operation
	s     *steps.Settings
	in    []config.Port
	batch int // 1 where the model batches: the number of dimensions before those of a row

	out []config.Port
	run runner
}

func (s *spec) param(key string) string { return s.s.Params[key] }

// specError is the error of a spec. The spec's methods panic with it and try recovers it, so that operations are made without a check
// after every parameter.
type specError struct{ error }

// try calls build and returns what it refuses.
func (s *spec) try(build func(*spec)) (err error) {
	defer func() {
		if p := recover(); p != nil {
			refused, ok := p.(specError)
			if !ok {
				panic(p)
			}
			err = refused.error
		}
	}()
	build(s)
	return nil
}

// refuse ends try with an error that names the operation and the model.
func (s *spec) refuse(format string, args ...any) {
	panic(specError{fmt.Errorf("operation '%s' of model '%s': %w", s.name, s.s.Model, fmt.Errorf(format, args...))})
}

// refuseType reports that input i does not have the expected type.
func (s *spec) refuseType(i int, expected string) {
	s.refuse("input '%s' is %s, expected %s", s.in[i].Name, s.in[i].DType.ConfigName(), expected)
}

// output adds an output, with the name that config.pbtxt gives it.
func (s *spec) output(d tensor.DType, dims tensor.Shape) {
	p := config.Port{Name: "OUTPUT", DType: d, Dims: dims}
	i := len(s.out)
	if i < len(s.s.Outputs) {
		p.Name = s.s.Outputs[i].Name
	}
	s.out = append(s.out, p)
}

func (s *spec) dtype(key string, byDefault tensor.DType) tensor.DType {
	text := s.param(key)
	if text == "" && byDefault != tensor.Invalid {
		return byDefault
	}
	name := strings.TrimPrefix(text, "TYPE_")
	if name == "STRING" {
		name = "BYTES"
	}
	d := tensor.ParseDType(name)
	if d == tensor.Invalid {
		s.refuse("parameter '%s' is '%s', expected a type such as FP32 or INT64", key, text)
	}
	return d
}

// rank returns the number of dimensions of a row of the first input.
func (s *spec) rank() int { return s.in[0].Dims.Rank() }

// axis reads parameter "axis" as one of rank axes; a negative one counts from the end.
func (s *spec) axis(rank, byDefault int) int {
	text := cmp.Or(s.param("axis"), strconv.Itoa(byDefault))
	n, err := strconv.Atoi(text)
	if err != nil || n < -rank || n >= rank {
		s.refuse("parameter 'axis' is '%s', expected an axis of %d dimensions", text, rank)
	}
	if n < 0 {
		n += rank
	}
	return n
}

// ints reads parameter key as integers separated by commas, for example "1, -1" or "[1, -1]".
func (s *spec) ints(key string) []int {
	text := strings.TrimSpace(s.param(key))
	if strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]") {
		text = strings.TrimSpace(text[1 : len(text)-1])
	}
	if text == "" {
		return nil
	}
	var out []int
	for f := range strings.SplitSeq(text, ",") {
		n, err := strconv.ParseInt(strings.TrimSpace(f), 10, 32)
		if err != nil {
			s.refuse("parameter '%s' is '%s', expected integers with commas between them", key, s.param(key))
		}
		out = append(out, int(n))
	}
	return out
}

// axes reads parameter "axes" as different axes; negative ones count from the end.
func (s *spec) axes() []int {
	list, rank := s.ints("axes"), s.rank()
	for i, n := range list {
		if n < 0 {
			n += rank
		}
		if n < 0 || n >= rank || slices.Contains(list[:i], n) {
			s.refuse("parameter 'axes' is '%s', expected different axes of %d dimensions", s.param("axes"), rank)
		}
		list[i] = n
	}
	return list
}

// flag reads parameter key as true or false, the default.
func (s *spec) flag(key string) bool {
	text := cmp.Or(s.param(key), "false")
	if text != "true" && text != "false" {
		s.refuse("parameter '%s' is '%s', expected true or false", key, text)
	}
	return text == "true"
}

// same refuses inputs from i on that have different types.
func (s *spec) same(i int) {
	for _, p := range s.in[i:] {
		if p.DType != s.in[i].DType {
			s.refuse("input '%s' is %s, expected %s as input '%s'", p.Name, p.DType.ConfigName(), s.in[i].DType.ConfigName(), s.in[i].Name)
		}
	}
}

// joined returns the dims that numpy broadcasts a and b to, where -1 is any extent. For example, [-1, 1] and [4] give [-1, 4].
func (s *spec) joined(a, b tensor.Shape) tensor.Shape {
	if a.Rank() < b.Rank() {
		a, b = b, a
	}
	out := a
	for i := 1; i <= b.Rank(); i++ {
		m, n := a.Dim(a.Rank()-i), b.Dim(b.Rank()-i)
		switch {
		case n == 1 || m == n:
		case m == 1 || m < 0:
			out.SetDim(a.Rank()-i, n)
		case n >= 0:
			s.refuse("dims %s and %s cannot be broadcast together", a, b)
		}
	}
	return out
}

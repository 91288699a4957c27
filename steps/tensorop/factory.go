package tensorop

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
)

// NewFactory returns the step "tensor".
//
// Inputs are those that config.pbtxt declares, by default INPUT of FP32 [-1]. They have up to
// 8 dimensions, the batch dimension among them. The output OUTPUT, or the outputs of split,
// follow from them. FP16 and BF16 are computed as FP32 and rounded. A number that an
// operation cannot process (division of an integer by zero, an index outside, a cast that
// does not fit) fails the request of its row. Shapes that do not fit together fail the load
// where config.pbtxt has them, else the batch.
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
			{Key: "swap", Doc: "Whether the value is the first operand."},
			{Key: "low", Doc: "clip: the least number."},
			{Key: "high", Doc: "clip: the greatest number."},
			{Key: "depth", Doc: "one_hot: the extent of the new last axis."},
		},
		Examples:  examples(),
		Inline:    false,
		Signature: signature,
		New:       newStep,
	}
}

func examples() []steps.Example {
	return []steps.Example{
		{
			Config: `max_batch_size: 8
input [ { name: "IMAGE" data_type: TYPE_UINT8 dims: [ 2, 2, 3 ] } ]
parameters { key: "step" value { string_value: "tensor" } }
parameters { key: "op" value { string_value: "transpose" } }
parameters { key: "axes" value { string_value: "2, 0, 1" } }`,
			Request: `{"inputs": [{"name": "IMAGE", "datatype": "UINT8", "shape": [1, 2, 2, 3], "data": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]}]}`,
		},
		{
			Config: `max_batch_size: 8
input [ { name: "A" data_type: TYPE_FP32 dims: [ 2, 3 ] }, { name: "B" data_type: TYPE_FP32 dims: [ 3 ] } ]
output [ { name: "SUM" data_type: TYPE_FP32 dims: [ 2, 3 ] } ]
parameters { key: "step" value { string_value: "tensor" } }
parameters { key: "op" value { string_value: "add" } }`,
			Request: `{"inputs": [
    {"name": "A", "datatype": "FP32", "shape": [1, 2, 3], "data": [1, 2, 3, 4, 5, 6]},
    {"name": "B", "datatype": "FP32", "shape": [1, 3], "data": [0.5, 0, -0.5]}]}`,
		},
		{
			Config: `input [ { name: "X" data_type: TYPE_INT32 dims: [ -1, 3 ] } ]
parameters { key: "step" value { string_value: "tensor" } }
parameters { key: "op" value { string_value: "mean" } }
parameters { key: "axes" value { string_value: "0" } }`,
			Request: `{"inputs": [{"name": "X", "datatype": "INT32", "shape": [2, 3], "data": [1, 2, 3, 4, 5, 7]}]}`,
		},
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
	if err := made.check(); err != nil {
		return nil, err
	}
	if err := made.build(made); err != nil {
		return nil, err
	}
	if len(s.Outputs) > len(made.out) {
		return nil, made.errorf("%d outputs are declared, expected %d", len(s.Outputs), len(made.out))
	}
	for i := range made.out {
		if p := &made.out[i]; p.Dims.Rank()+made.batch > maxRank {
			return nil, made.errorf("output '%s' has %d dimensions, expected at most %d with that of the batch", p.Name, p.Dims.Rank()+made.batch, maxRank)
		}
	}
	return made, nil
}

// check refuses inputs that no operation accepts, and parameters that this one does not have.
func (s *spec) check() error {
	if n := len(s.in); n < s.least || n > s.most {
		return s.errorf("%d inputs are declared, expected %d to %d", n, s.least, s.most)
	}
	for i := range s.in {
		p := &s.in[i]
		switch {
		case p.Optional:
			return s.errorf("input '%s' is optional, but all are needed", p.Name)
		case p.DType == tensor.Invalid:
			return s.errorf("input '%s' has no type", p.Name)
		case p.Dims.Rank()+s.batch > maxRank:
			return s.errorf("input '%s' has %d dimensions, expected at most %d with that of the batch", p.Name, p.Dims.Rank()+s.batch, maxRank)
		}
	}
	for key, v := range s.s.Params {
		if v != "" && key != "op" && !slices.Contains(s.params, key) {
			return s.errorf("parameter '%s' is none of this operation, expected one of: %s", key, strings.Join(s.params, ", "))
		}
	}
	return nil
}

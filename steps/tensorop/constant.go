package tensorop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
)

// NewConstantFactory returns the step "constant".
//
// Output OUTPUT has any type and shape, and the same value for every row. Inputs are those that
// config.pbtxt declares, by default INPUT of FP32 [-1]; only their number of rows is used.
func NewConstantFactory() steps.Factory {
	return steps.Factory{
		Name: "constant",
		Doc:  "Returns a value of the configuration, once for each row of the batch. Any inputs may be declared; they only set the number of rows.",
		Params: []steps.Param{
			{Key: "value", Doc: "The value in JSON: a number, true, false or text, or arrays of them as nested as the dims; NaN, Infinity and -Infinity are texts there.", Default: "0"},
			{Key: "dtype", Doc: "Its type (FP32, INT64, BYTES, ...).", Default: "FP32"},
		},
		Examples: []steps.Example{{
			Config: steps.ExampleConfig(`max_batch_size: 8
input [ { name: "TEXT" data_type: TYPE_STRING dims: [ 1 ] } ]`, "constant", "value", "[0.5, 2]"),
			Request: `{"inputs": [{"name": "TEXT", "datatype": "BYTES", "shape": [2, 1], "data": ["a", "b"]}]}`,
		}},
		Inline:    true,
		Signature: constantSignature,
		New:       newConstant,
	}
}

func constantSignature(s *steps.Settings) (*config.Signature, error) {
	value, err := readConstant(s)
	if err != nil {
		return nil, err
	}
	in := s.Inputs
	if len(in) == 0 {
		in = []config.Port{{Name: "INPUT", DType: tensor.FP32, Dims: tensor.Of(-1)}}
	}
	if len(s.Outputs) > 1 {
		return nil, fmt.Errorf("model '%s' declares %d outputs, but step 'constant' has 1", s.Model, len(s.Outputs))
	}
	out := config.Port{Name: "OUTPUT", DType: value.DType, Dims: value.Shape}
	if len(s.Outputs) == 1 {
		out.Name = s.Outputs[0].Name
	}
	return &config.Signature{Inputs: in, Outputs: []config.Port{out}}, nil
}

func readConstant(s *steps.Settings) (value tensor.Tensor, err error) {
	of := &spec{operation: &operation{name: "constant"}, s: s}
	err = of.try(func(of *spec) {
		d := of.dtype("dtype", tensor.Invalid)
		shape, texts, err := parseConstant(s)
		if err != nil {
			panic(specError{fmt.Errorf("parameter 'value' of model '%s' %w", s.Model, err)})
		}
		value = of.constant(d, shape, texts, "an element is '%s', expected one of type %s")
	})
	return value, err
}

// parseConstant parses parameter value: its shape, and its elements as texts.
func parseConstant(s *steps.Settings) (tensor.Shape, []string, error) {
	decoder := json.NewDecoder(strings.NewReader(s.Params["value"]))
	decoder.UseNumber()
	var tree any
	if err := decoder.Decode(&tree); err != nil || decoder.More() {
		return tensor.Shape{}, nil, fmt.Errorf("is '%.60s', expected JSON", s.Params["value"])
	}
	var dims []int64
	for list, ok := tree.([]any); ok; list, ok = list[0].([]any) {
		if dims = append(dims, int64(len(list))); len(list) == 0 {
			break
		}
	}
	if len(dims) >= maxRank {
		return tensor.Shape{}, nil, fmt.Errorf("has %d dimensions, expected fewer than %d", len(dims), maxRank)
	}
	texts, err := leaves(nil, tree, dims)
	return tensor.Of(dims...), texts, err
}

// leaves appends the elements of a JSON value as texts, row by row.
func leaves(dst []string, tree any, dims []int64) ([]string, error) {
	list, nested := tree.([]any)
	if nested != (len(dims) > 0) || nested && int64(len(list)) != dims[0] {
		return nil, errors.New("is of uneven arrays, expected all of a depth to have the same length")
	}
	if nested {
		var err error
		for _, e := range list {
			if dst, err = leaves(dst, e, dims[1:]); err != nil {
				return nil, err
			}
		}
		return dst, nil
	}
	switch v := tree.(type) {
	case string:
		return append(dst, v), nil
	case json.Number, bool:
		return append(dst, fmt.Sprint(v)), nil
	default:
		return nil, errors.New("has an element that is no number, text, true or false")
	}
}

// constant returns a tensor of elements that are given as texts. refusal is the error for one, a format for it and the type.
func (s *spec) constant(d tensor.DType, shape tensor.Shape, texts []string, refusal string) tensor.Tensor {
	var data []byte
	for _, text := range texts {
		data = tensor.AppendBytes(data, text)
	}
	t := s.fixed(d, shape, len(data))
	if d == tensor.Bytes {
		copy(t.Bytes(), data)
		return t
	}
	for i, text := range texts {
		if err := setText(&t, i, []byte(text)); err != nil {
			s.refuse(refusal, text, d)
		}
	}
	return t
}

type constant struct {
	batched bool
	value   tensor.Tensor
}

func newConstant(s *steps.Settings) (steps.Step, error) {
	value, err := readConstant(s)
	if err != nil {
		return nil, err
	}
	return &constant{s.MaxBatch > 0, value}, nil
}

// Run repeats the value for each row.
func (c *constant) Run(_ context.Context, b *backends.Batch) error {
	rows, shape := b.Rows, steps.Shape(b, c.batched, c.value.Shape.Dims()...)
	data := c.value.Bytes()
	var out *tensor.Tensor
	var err error
	if c.value.DType == tensor.Bytes {
		if rows > 0 && len(data) > (1<<40)/rows {
			return status.Errorf(status.InvalidArg, "%d rows of %d bytes are too many", rows, len(data))
		}
		out, err = b.AllocBytes(0, shape, rows*len(data))
	} else {
		out, err = b.Alloc(0, c.value.DType, shape)
	}
	if err != nil {
		return err
	}
	dst := out.Bytes()
	for row := range rows {
		copy(dst[row*len(data):], data)
	}
	return nil
}

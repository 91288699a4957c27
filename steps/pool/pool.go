// Package pool holds the step "pool": it turns the vectors of a text's tokens into one vector for the text, as
// sentence-transformers' Pooling layer does.
package pool

import (
	"context"
	"math"
	"slices"

	"tutti/backends"
	"tutti/core/config"
	"tutti/core/status"
	"tutti/core/tensor"
	"tutti/steps"
)

// The modes.
const (
	modeMean = "mean"
	modeCLS  = "cls"
	modeMax  = "max"
)

const (
	portHidden = iota
	portMask
)

// NewFactory returns the step "pool".
//
// Inputs are last_hidden_state FP32 [tokens, width] and attention_mask INT64 [tokens], of which a 0 hides a token; the
// output is embedding FP32 [width]. The mean of a text without tokens is 0 in every element, as is the maximum.
func NewFactory() steps.Factory {
	return steps.Factory{
		Name: "pool",
		Doc: "Makes one vector per text of the vectors of its tokens: their mean or maximum over the tokens whose " +
			"attention mask is not 0, or the first token's. The result can be brought to length 1.",
		Params: []steps.Param{
			{Key: "mode", Default: modeMean, Values: []string{modeMean, modeCLS, modeMax}, Doc: "how the tokens' vectors are combined"},
			{Key: "normalize", Default: "false", Values: []string{"true", "false"}, Doc: "whether the result is divided by its L2 norm"},
		},
		Examples: []steps.Example{{
			Config: `parameters { key: "step" value { string_value: "pool" } }`,
			Request: `{"inputs": [
    {"name": "last_hidden_state", "datatype": "FP32", "shape": [3, 2], "data": [1, 2, 3, 6, 9, 9]},
    {"name": "attention_mask", "datatype": "INT64", "shape": [3], "data": [1, 1, 0]}]}`,
		}},
		Inline:    true,
		Signature: signature,
		New:       newStep,
	}
}

func signature(*steps.Settings) (*config.Signature, error) {
	return &config.Signature{
		Inputs: []config.Port{
			portHidden: {Name: "last_hidden_state", DType: tensor.FP32, Dims: tensor.Of(-1, -1)},
			portMask:   {Name: "attention_mask", DType: tensor.Int64, Dims: tensor.Of(-1)},
		},
		Outputs: []config.Port{{Name: "embedding", DType: tensor.FP32, Dims: tensor.Of(-1)}},
	}, nil
}

// step is the step "pool".
type step struct {
	combine   func(out, hidden []float32, mask []int64)
	batched   bool
	normalize bool
}

var _ steps.Step = (*step)(nil)

func newStep(s *steps.Settings) (steps.Step, error) {
	normalize, err := s.Bool("normalize")
	if err != nil {
		return nil, err
	}
	out := &step{batched: s.MaxBatch > 0, normalize: normalize}
	switch s.Params["mode"] {
	case modeCLS:
		out.combine = first
	case modeMax:
		out.combine = highest
	default:
		out.combine = mean
	}
	return out, nil
}

// Run pools each row.
//
// hot: no allocation.
func (s *step) Run(_ context.Context, b *backends.Batch) error {
	shape, maskShape := b.In[portHidden].Shape, b.In[portMask].Shape
	if !s.batched {
		shape, maskShape = shape.Prepend(1), maskShape.Prepend(1)
	}
	rows, tokens, width := int(shape.Dim(0)), int(shape.Dim(1)), int(shape.Dim(2))
	if int64(tokens) != maskShape.Dim(1) || int64(rows) != maskShape.Dim(0) {
		return status.Errorf(status.InvalidArg, "unexpected shape for input 'attention_mask', expected [%d,%d], got %s, for "+
			"'last_hidden_state' has %d tokens", rows, tokens, maskShape, tokens)
	}
	hidden, mask := tensor.Slice[float32](&b.In[portHidden]), tensor.Slice[int64](&b.In[portMask])
	outShape := tensor.Of(int64(width))
	if s.batched {
		outShape = tensor.Of(int64(rows), int64(width))
	}
	t, err := b.Alloc(0, tensor.FP32, outShape)
	if err != nil {
		return err
	}
	out := tensor.Slice[float32](t)
	for row := range rows {
		to := out[row*width : (row+1)*width]
		s.combine(to, hidden[row*tokens*width:(row+1)*tokens*width], mask[row*tokens:(row+1)*tokens])
		if s.normalize {
			toUnit(to)
		}
	}
	return nil
}

// mean is the sum of the unmasked vectors over their number.
func mean(out, hidden []float32, mask []int64) {
	clear(out)
	n := 0
	for i, m := range mask {
		if m == 0 {
			continue
		}
		n++
		for j, v := range hidden[i*len(out) : (i+1)*len(out)] {
			out[j] += v
		}
	}
	if n == 0 {
		return
	}
	for j := range out {
		out[j] /= float32(n)
	}
}

// first is the first token's vector, whatever the mask.
func first(out, hidden []float32, mask []int64) {
	clear(out)
	if len(mask) > 0 {
		copy(out, hidden)
	}
}

// highest is the element-wise maximum of the unmasked vectors.
func highest(out, hidden []float32, mask []int64) {
	clear(out)
	start := slices.IndexFunc(mask, func(m int64) bool { return m != 0 })
	if start < 0 {
		return
	}
	copy(out, hidden[start*len(out):])
	for i := start + 1; i < len(mask); i++ {
		if mask[i] == 0 {
			continue
		}
		for j, v := range hidden[i*len(out) : (i+1)*len(out)] {
			out[j] = max(out[j], v)
		}
	}
}

// smallest is what PyTorch's normalize divides by at least.
const smallest = 1e-12

// toUnit divides v by its L2 norm.
func toUnit(v []float32) {
	sum := 0.0
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	norm := float32(max(math.Sqrt(sum), smallest))
	for i := range v {
		v[i] /= norm
	}
}

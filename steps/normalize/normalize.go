// Package normalize holds the step "normalize": it brings vectors to length 1, so that their inner product is the
// cosine of the angle between them.
package normalize

import (
	"context"
	"math"

	"tutti/backends"
	"tutti/core/config"
	"tutti/core/tensor"
	"tutti/steps"
)

// NewFactory returns the step "normalize".
//
// The input is embedding FP32 [width] and so is the output, divided by the input's L2 norm or 1e-12, whichever is
// larger, as PyTorch's functional.normalize does. A vector of zeros stays one.
func NewFactory() steps.Factory {
	return steps.Factory{
		Name:   "normalize",
		Doc:    "Divides each vector by its L2 norm. A vector of zeros stays as it is.",
		Inline: true,
		Examples: []steps.Example{{
			Config:  `parameters { key: "step" value { string_value: "normalize" } }`,
			Request: `{"inputs": [{"name": "embedding", "datatype": "FP32", "shape": [2], "data": [3, 4]}]}`,
		}},
		Signature: signature,
		New:       func(*steps.Settings) (steps.Step, error) { return step{}, nil },
	}
}

func signature(*steps.Settings) (*config.Signature, error) {
	port := []config.Port{{Name: "embedding", DType: tensor.FP32, Dims: tensor.Of(-1)}}
	return &config.Signature{Inputs: port, Outputs: port}, nil
}

// step is the step "normalize".
type step struct{}

var _ steps.Step = step{}

// Run normalizes each row.
//
// hot: no allocation.
func (step) Run(_ context.Context, b *backends.Batch) error {
	in := &b.In[0]
	t, err := b.Alloc(0, tensor.FP32, in.Shape)
	if err != nil {
		return err
	}
	width := int(in.Shape.Dim(in.Shape.Rank() - 1))
	from, to := tensor.Slice[float32](in), tensor.Slice[float32](t)
	for ; width > 0 && len(from) >= width; from, to = from[width:], to[width:] {
		unit(to[:width], from[:width])
	}
	return nil
}

// smallest is what is divided by at least.
const smallest = 1e-12

// unit makes to the vector from at length 1.
func unit(to, from []float32) {
	sum := 0.0
	for _, x := range from {
		sum += float64(x) * float64(x)
	}
	norm := float32(max(math.Sqrt(sum), smallest))
	for i, x := range from {
		to[i] = x / norm
	}
}

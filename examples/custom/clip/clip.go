// Package clip is a native step: it limits values to a range.
package clip

import (
	"context"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
)

// NewFactory declares the step "clip": its parameter, its tensors and its constructor.
func NewFactory() steps.Factory {
	return steps.Factory{
		Name:   "clip",
		Doc:    "Limits values to the range from -limit to limit.",
		Params: []steps.Param{{Key: "limit", Doc: "the largest absolute value", Default: "1"}},
		Inline: true,
		Signature: func(*steps.Settings) (*config.Signature, error) {
			return &config.Signature{
				Inputs:  []config.Port{{Name: "IN", DType: tensor.FP32, Dims: tensor.Of(-1)}},
				Outputs: []config.Port{{Name: "OUT", DType: tensor.FP32, Dims: tensor.Of(-1)}},
			}, nil
		},
		New: func(s *steps.Settings) (steps.Step, error) {
			limit, err := s.Float("limit")
			return &step{float32(limit)}, err
		},
	}
}

type step struct{ limit float32 }

// Run implements steps.Step.
func (s *step) Run(_ context.Context, b *backends.Batch) error {
	out, err := b.Alloc(0, tensor.FP32, b.In[0].Shape)
	if err != nil {
		return err
	}
	to := tensor.Slice[float32](out)
	for i, v := range tensor.Slice[float32](&b.In[0]) {
		to[i] = min(max(v, -s.limit), s.limit)
	}
	return nil
}

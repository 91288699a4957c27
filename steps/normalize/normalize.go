// Package normalize holds the step "normalize": it scales vectors to length 1, so that their inner product is the cosine of the angle
// between them. For example, [3 4] becomes [0.6 0.8].
package normalize

import (
	"context"
	"math"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/steps"
)

// NewFactory returns the step "normalize".
//
// The input is embedding FP32 or FP16 [width], the output FP32 [width]: the input divided by its L2 norm or 1e-12,
// whichever is larger, as PyTorch's functional.normalize does. A vector of zeros stays. At a device the squares are added in
// another order: an element may differ in the last place.
func NewFactory() steps.Factory {
	return steps.Factory{
		Name: "normalize",
		Doc: "Divides each vector by its L2 norm. A vector of zeros stays as it is. An input that config.pbtxt declares " +
			"FP16 is read as such; the output is FP32.",
		Inline: true,
		Examples: []steps.Example{{
			Config:  steps.ExampleConfig("", "normalize"),
			Request: `{"inputs": [{"name": "embedding", "datatype": "FP32", "shape": [2], "data": [3, 4]}]}`,
		}},
		Signature: signature,
		New:       func(*steps.Settings) (steps.Step, error) { return &step{}, nil },
	}
}

func signature(s *steps.Settings) (*config.Signature, error) {
	return &config.Signature{
		Inputs:  []config.Port{s.FloatPort("embedding", -1)},
		Outputs: []config.Port{{Name: "embedding", DType: tensor.FP32, Dims: tensor.Of(-1)}},
	}, nil
}

type step struct{ spare pool.Of[[]float32] }

// Run normalizes each row.
//
// hot: no allocation.
func (s *step) Run(_ context.Context, b *backends.Batch) error {
	in := &b.In[0]
	t, err := b.Alloc(0, tensor.FP32, in.Shape)
	if err != nil {
		return err
	}
	spare := s.spare.Get()
	defer s.spare.Put(spare)
	width, to := int(in.Shape.Dim(in.Shape.Rank()-1)), tensor.Slice[float32](t)
	for at := 0; width > 0 && at < len(to); at += width {
		var from []float32
		from, *spare = steps.Floats(*spare, in, at, width)
		unit(to[at:at+width], from)
	}
	return nil
}

// smallest is the least divisor.
const smallest = 1e-12

// unit writes from, scaled to length 1, to to.
func unit(to, from []float32) {
	sum := squares(from)
	norm := float32(max(math.Sqrt(sum), smallest))
	to = to[:len(from)]
	for i, x := range from {
		to[i] = x / norm
	}
}

// squares returns the sum of the squares, in four sums that the processor computes in parallel.
func squares(v []float32) float64 {
	var a, b, c, d float64
	for ; len(v) >= 4; v = v[4:] {
		a += float64(v[0]) * float64(v[0])
		b += float64(v[1]) * float64(v[1])
		c += float64(v[2]) * float64(v[2])
		d += float64(v[3]) * float64(v[3])
	}
	for _, x := range v {
		a += float64(x) * float64(x)
	}
	return a + b + c + d
}

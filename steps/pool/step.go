package pool

import (
	"context"
	"math"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/steps"
)

// step is the step "pool".
type step struct {
	combine   func(out []float32, r *row)
	batched   bool
	normalize bool
	scratch   pool.Of[row]
}

var _ steps.Step = (*step)(nil)

// row is the input of one text. The spare slices hold values converted from FP16.
type row struct {
	hidden  []float32
	mask    []int64
	weights []float32 // nil without the input

	spareHidden, spareWeights []float32
}

// Run pools each row.
//
// hot: no allocation.
func (s *step) Run(_ context.Context, b *backends.Batch) error {
	if err := check(b); err != nil {
		return err
	}
	shape := &b.In[portHidden].Shape
	width, tokens := int(shape.Dim(shape.Rank()-1)), int(shape.Dim(shape.Rank()-2))
	outShape := tensor.Of(int64(width))
	if s.batched {
		outShape = outShape.Prepend(int64(b.Rows))
	}
	t, err := b.Alloc(0, tensor.FP32, outShape)
	if err != nil {
		return err
	}
	r := s.scratch.Get()
	out, masks := tensor.Slice[float32](t), tensor.Slice[int64](&b.In[portMask])
	for i := range b.Rows {
		r.hidden, r.spareHidden = steps.Floats(r.spareHidden, &b.In[portHidden], i*tokens*width, tokens*width)
		r.mask, r.weights = masks[i*tokens:(i+1)*tokens], nil
		if weighted(b) {
			r.weights, r.spareWeights = steps.Floats(r.spareWeights, &b.In[portWeights], i*tokens, tokens)
		}
		to := out[i*width : (i+1)*width]
		s.combine(to, r)
		if s.normalize {
			toUnit(to)
		}
	}
	r.hidden, r.mask, r.weights = nil, nil, nil
	s.scratch.Put(r)
	return nil
}

// weighted reports whether the request has weights.
func weighted(b *backends.Batch) bool { return len(b.In) > portWeights && b.In[portWeights].Present() }

// check returns an error for a mask or weights of another length than the vectors.
func check(b *backends.Batch) error {
	dims := b.In[portHidden].Shape.Dims()
	want := tensor.Of(dims[:len(dims)-1]...)
	if got := b.In[portMask].Shape; !got.Equal(want) {
		return mismatch("attention_mask", want, got)
	}
	if weighted(b) && !b.In[portWeights].Shape.Equal(want) {
		return mismatch("weights", want, b.In[portWeights].Shape)
	}
	return nil
}

func mismatch(name string, want, got tensor.Shape) error {
	return status.Errorf(status.InvalidArg, "unexpected shape for input '%s', expected %s as 'last_hidden_state' has, got %s", name, want, got)
}

// smallest is the least divisor, that of PyTorch's normalize.
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

package exec_test

import (
	"strings"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/pipeline/plan"
)

// TestReshape checks that a model receives its own shape and the response has the declared one, alone and between
// steps without a reshape.
func TestReshape(t *testing.T) {
	t.Parallel()
	bn := newBench(t)
	sig := signature("m", 1, 8)
	for _, p := range []*config.Port{&sig.Inputs[0], &sig.Outputs[0]} {
		p.Reshape, _ = config.NewReshaping(p.Dims, p.Dims.Prepend(1), true)
	}
	var seen tensor.Shape
	x := bn.executor(plan.Single(sig), bn.inline(sig, func(b *backends.Batch) error {
		seen = b.In[0].Shape
		return share(b)
	}))
	got, err := inferOne(t, x, bn.request(1, 2))
	if err != nil || len(got) != 2 {
		t.Errorf("got %v (%v)", got, err)
	}
	if seen.Rank() != sig.Inputs[0].Dims.Rank()+2 || seen.Dim(1) != 1 {
		t.Errorf("the model has seen %s", seen)
	}
	wrong := bn.executor(plan.Single(sig), bn.inline(sig, func(b *backends.Batch) error {
		out := b.In[0].Retain()
		out.Shape = tensor.Of(1, 2)
		b.SetOutput(0, out)
		return nil
	}))
	if _, err := inferOne(t, wrong, bn.request(1, 2)); err == nil || !strings.Contains(err.Error(), "has shape [1,2] for a batch of 1") {
		t.Errorf("a model that returns the request's shape: error %v", err)
	}
}

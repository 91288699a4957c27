package classify

import (
	"context"
	"fmt"
	"math"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
)

// options are the parameters of top_k.
type options struct {
	k          int
	activation string
	threshold  float32
	cut        bool // a threshold is set
}

// step is top_k.
type step struct {
	options
	batched bool
	labels  steps.Labels
}

var _ steps.Step = (*step)(nil)

func parse(s *steps.Settings) (options, error) {
	o := options{activation: s.Params["activation"], cut: s.Params["threshold"] != noThreshold}
	k, err := s.Int("k", 1)
	if err != nil {
		return o, err
	}
	if k > math.MaxInt32 {
		return o, status.Errorf(status.InvalidArg, "parameter 'k' of model '%s' is %d, expected at most %d", s.Model, k, math.MaxInt32)
	}
	o.k = k
	if o.cut {
		v, err := s.Float("threshold")
		if err != nil {
			return o, err
		}
		o.threshold = float32(v)
	}
	if o.activation != auto {
		return o, nil
	}
	soft, err := s.Bool("softmax")
	if o.activation = opRaw; soft {
		o.activation = opSoftmax
	}
	return o, err
}

func newStep(s *steps.Settings) (steps.Step, error) {
	o, err := parse(s)
	if err != nil {
		return nil, err
	}
	labels, err := readLabels(s, o.k)
	if err != nil {
		return nil, err
	}
	out := &step{options: o, batched: s.MaxBatch > 0, labels: labels}
	if n := declared(s); n >= 0 {
		if err := out.check(n); err != nil {
			return nil, fmt.Errorf("model '%s': %w", s.Model, err)
		}
	}
	return out, nil
}

// declared returns the number of classes in config.pbtxt, -1 if it is variable.
func declared(s *steps.Settings) int {
	if len(s.Inputs) != 1 {
		return -1
	}
	dims := s.Inputs[0].ModelDims()
	if dims.Rank() != 1 {
		return -1
	}
	return int(dims.Dim(0))
}

// Run ranks the classes of each row.
//
// hot: only the outputs are allocated.
func (s *step) Run(_ context.Context, b *backends.Batch) error {
	in := &b.In[0]
	classes := int(in.Shape.Dim(in.Shape.Rank() - 1))
	if err := s.check(classes); err != nil {
		return err
	}
	shape := s.shape(b, s.k)
	v, err := b.Alloc(outValues, tensor.FP32, shape)
	if err != nil {
		return err
	}
	x, err := b.Alloc(outIndices, tensor.Int32, shape)
	if err != nil {
		return err
	}
	scores, values, indices := tensor.Slice[float32](in), tensor.Slice[float32](v), tensor.Slice[int32](x)
	var counts []int32
	if s.cut {
		if counts, err = s.counts(b); err != nil {
			return err
		}
	}
	for row := range b.Rows {
		v, x := values[row*s.k:][:s.k], indices[row*s.k:][:s.k]
		s.row(v, x, scores[row*classes:][:classes])
		if s.cut {
			counts[row] = cut(v, x, s.threshold)
		}
	}
	return steps.WriteLabels(b, outLabels, shape, s.labels, indices)
}

// counts allocates the output count, the last one.
func (s *step) counts(b *backends.Batch) ([]int32, error) {
	port := outLabels
	if s.labels != nil {
		port++
	}
	t, err := b.Alloc(port, tensor.Int32, s.shape(b, 1))
	if err != nil {
		return nil, err
	}
	return tensor.Slice[int32](t), nil
}

func (s *step) shape(b *backends.Batch, n int) tensor.Shape {
	if s.batched {
		return tensor.Of(int64(b.Rows), int64(n))
	}
	return tensor.Of(int64(n))
}

// cut clears the classes below the threshold and returns the number of the others.
func cut(values []float32, indices []int32, threshold float32) int32 {
	n := len(values)
	for n > 0 && !(values[n-1] >= threshold) { // NaN, too: they are last
		n--
		values[n], indices[n] = 0, -1
	}
	return int32(n)
}

// check returns an error for a number of classes that does not fit k or the labels.
func (s *step) check(classes int) error {
	switch {
	case classes < s.k:
		return status.Errorf(status.InvalidArg, "input '%s': expected at least k = %d classes, found %d", inputName, s.k, classes)
	case classes > math.MaxInt32:
		return status.Errorf(status.InvalidArg, "input '%s': expected at most %d classes, found %d", inputName, math.MaxInt32, classes)
	case s.labels != nil && classes > len(s.labels):
		return status.Errorf(status.InvalidArg, "input '%s': expected at most %d classes, one per line of labels_file, found %d",
			inputName, len(s.labels), classes)
	}
	return nil
}

func (s *step) row(values []float32, indices []int32, scores []float32) {
	best(indices, scores)
	if s.activation == opSoftmax {
		pick(values, indices, scores)
		return
	}
	for i, class := range indices {
		if values[i] = scores[class]; s.activation == opSigmoid {
			values[i] = sigmoid(values[i])
		}
	}
}

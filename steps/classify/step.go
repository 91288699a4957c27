package classify

import (
	"context"
	"math"

	"tutti/backends"
	"tutti/core/status"
	"tutti/core/tensor"
	"tutti/steps"
)

// step is top_k.
type step struct {
	k       int
	softmax bool
	batched bool
	labels  [][]byte // Encoded BYTES elements.
}

var _ steps.Step = (*step)(nil)

func parseK(s *steps.Settings) (int, error) {
	k, err := s.Int("k", 1)
	if err == nil && k > math.MaxInt32 {
		err = status.Errorf(status.InvalidArg, "parameter 'k' of model '%s' is %d, expected at most %d", s.Model, k, math.MaxInt32)
	}
	return k, err
}

func newStep(s *steps.Settings) (steps.Step, error) {
	k, err := parseK(s)
	if err != nil {
		return nil, err
	}
	soft, err := s.Bool("softmax")
	if err != nil {
		return nil, err
	}
	labels, err := readLabels(s, k)
	if err != nil {
		return nil, err
	}
	return &step{k: k, softmax: soft, batched: s.MaxBatch > 0, labels: labels}, nil
}

// Run ranks the classes of each row.
//
// hot: no allocation but the outputs'.
func (s *step) Run(_ context.Context, b *backends.Batch) error {
	in := &b.In[0]
	classes := int(in.Shape.Dim(in.Shape.Rank() - 1))
	if err := s.check(classes); err != nil {
		return err
	}
	shape := tensor.Of(int64(s.k))
	if s.batched {
		shape = shape.Prepend(int64(b.Rows))
	}
	v, err := b.Alloc(outValues, tensor.FP32, shape)
	if err != nil {
		return err
	}
	x, err := b.Alloc(outIndices, tensor.Int32, shape)
	if err != nil {
		return err
	}
	scores, values, indices := tensor.Slice[float32](in), tensor.Slice[float32](v), tensor.Slice[int32](x)
	for row := range b.Rows {
		s.row(values[row*s.k:][:s.k], indices[row*s.k:][:s.k], scores[row*classes:][:classes])
	}
	return s.label(b, shape, indices)
}

// check refuses a class count that k or the labels do not fit. All rows of a
// batch have the same.
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
	if s.softmax {
		softmax(values, indices, scores)
		return
	}
	for i, class := range indices {
		values[i] = scores[class]
	}
}

// label writes the labels of the picked classes.
func (s *step) label(b *backends.Batch, shape tensor.Shape, indices []int32) error {
	if s.labels == nil {
		return nil
	}
	n := 0
	for _, class := range indices {
		n += len(s.labels[class])
	}
	out, err := b.AllocBytes(outLabels, shape, n)
	if err != nil {
		return err
	}
	dst := out.Bytes()
	for _, class := range indices {
		dst = dst[copy(dst, s.labels[class]):]
	}
	return nil
}

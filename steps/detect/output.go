package detect

import (
	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
)

// places returns the number of boxes per row of the outputs.
func (s *step) places(w *worker) int {
	if !s.rows {
		return s.maxDetections
	}
	most, start := 0, 0
	for _, end := range w.ends {
		most, start = max(most, end-start), end
	}
	return most
}

// shape adds the batch dimension to dims.
func (s *step) shape(b *backends.Batch, dims tensor.Shape) tensor.Shape {
	if s.batched {
		return dims.Prepend(int64(b.Rows))
	}
	return dims
}

// write fills the outputs.
func (s *step) write(b *backends.Batch, w *worker) error {
	n := s.places(w)
	each := s.shape(b, tensor.Of(int64(n)))
	boxes, err := b.Alloc(outBoxes, tensor.FP32, s.shape(b, tensor.Of(int64(n), 4)))
	if err != nil {
		return err
	}
	scores, err := b.Alloc(outScores, tensor.FP32, each)
	if err != nil {
		return err
	}
	classes, err := b.Alloc(outClasses, tensor.Int32, each)
	if err != nil {
		return err
	}
	count, err := b.Alloc(outCount, tensor.Int32, s.shape(b, tensor.Of(1)))
	if err != nil {
		return err
	}
	toBoxes, toScores := tensor.Slice[float32](boxes), tensor.Slice[float32](scores)
	toClasses, counts := tensor.Slice[int32](classes), tensor.Slice[int32](count)
	start := 0
	for row, end := range w.ends {
		counts[row] = int32(end - start)
		fill(toBoxes[4*n*row:][:4*n], toScores[n*row:][:n], toClasses[n*row:][:n], w.found[start:end])
		start = end
	}
	return steps.WriteLabels(b, outLabels, each, s.labels, toClasses)
}

// fill writes the boxes of one row, and class -1 after them.
func fill(boxes, scores []float32, classes []int32, found []candidate) {
	for i := range found {
		c := &found[i]
		copy(boxes[4*i:], c.box[:])
		scores[i], classes[i] = c.score, c.class
	}
	clear(boxes[4*len(found):])
	clear(scores[len(found):])
	for i := range classes[len(found):] {
		classes[len(found)+i] = -1
	}
}

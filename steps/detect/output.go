package detect

import (
	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
)

// nobody is the label of no box.
var nobody = tensor.AppendBytes(nil, "")

// places is how many boxes each row of the outputs has.
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

// shape puts the batch dimension before the others.
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
	return s.label(b, each, toClasses)
}

// fill writes the boxes of one row, and nothing after them.
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

// label writes the labels of the classes.
func (s *step) label(b *backends.Batch, shape tensor.Shape, classes []int32) error {
	if s.labels == nil {
		return nil
	}
	n := 0
	for _, class := range classes {
		n += len(s.of(class))
	}
	out, err := b.AllocBytes(outLabels, shape, n)
	if err != nil {
		return err
	}
	dst := out.Bytes()
	for _, class := range classes {
		dst = dst[copy(dst, s.of(class)):]
	}
	return nil
}

// of is the label of a class.
func (s *step) of(class int32) []byte {
	if class < 0 {
		return nobody
	}
	return s.labels[class]
}

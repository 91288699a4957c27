package detect

import (
	"math"
	"slices"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// part is one row of an input.
type part struct {
	dims [4]int // without the batch dimension
	data []float32
}

func (s *step) row(b *backends.Batch, port, row int) part {
	in := &b.In[port]
	shape := in.Shape
	if s.batched {
		shape = shape.Tail()
	}
	p, n := part{}, 1
	for i := range min(shape.Rank(), len(p.dims)) {
		p.dims[i] = int(shape.Dim(i))
		n *= p.dims[i]
	}
	p.data = tensor.Slice[float32](in)[row*n:][:n]
	return p
}

// decode collects the candidates of a row.
func (s *step) decode(w *worker, b *backends.Batch, row int) error {
	switch s.format {
	case formatBoxes:
		return s.plain(w, s.row(b, 0, row), s.row(b, 1, row))
	case formatDETR:
		return s.plain(w, s.row(b, 1, row), s.row(b, 0, row))
	case formatV5:
		return s.v5(w, s.row(b, 0, row))
	case formatV8:
		return s.v8(w, s.row(b, 0, row))
	default:
		return s.raw(w, b, row)
	}
}

// classes returns the number of classes: n numbers less none that are not scores.
func (s *step) classes(input string, n, none int) (int, error) {
	c := n - none
	switch {
	case c < 1:
		return 0, status.Errorf(status.InvalidArg, "input '%s': expected at least %d numbers for a box, found %d", input, none+1, n)
	case s.labels != nil && c > len(s.labels):
		return 0, status.Errorf(status.InvalidArg, "input '%s': expected at most %d classes, one per line of labels_file, found %d", input, len(s.labels), c)
	}
	return c, nil
}

// plain decodes boxes with a score per class.
func (s *step) plain(w *worker, boxes, scores part) error {
	name, none := "scores", 0
	if s.format == formatDETR {
		name = "logits"
	}
	if s.activation == "softmax" {
		none = 1
	}
	n, c := boxes.dims[0], scores.dims[1]
	if scores.dims[0] != n {
		return status.Errorf(status.InvalidArg, "input '%s': expected %d rows, one for each box, found %d", name, n, scores.dims[0])
	}
	if _, err := s.classes(name, c, none); err != nil {
		return err
	}
	for i := range n {
		box, from := boxes.data[4*i:][:4], scores.data[c*i:][:c]
		switch s.activation {
		case "softmax":
			w.softmax(from)
			from = w.best[:c-1]
		case "sigmoid":
			s.sigmoids(w, from)
			from = w.best[:c]
		}
		s.scored(w, box, 1, from, i)
	}
	return nil
}

// scored adds a box for its best class, or for each class above the threshold. order is its index in the input.
func (s *step) scored(w *worker, box []float32, object float32, scores []float32, order int) {
	_ = box[3]
	if s.multi {
		for class, v := range scores {
			if v := object * v; v > s.score {
				w.add(&s.options, box[0], box[1], box[2], box[3], v, class, order)
			}
		}
		return
	}
	best, at := float32(math.Inf(-1)), 0
	for class, v := range scores {
		if v > best {
			best, at = v, class
		}
	}
	if v := object * best; v > s.score {
		w.add(&s.options, box[0], box[1], box[2], box[3], v, at, order)
	}
}

// v5 decodes rows of a box, its objectness and a score per class.
func (s *step) v5(w *worker, p part) error {
	n, c := p.dims[0], p.dims[1]
	if _, err := s.classes("predictions", c, 5); err != nil {
		return err
	}
	for i := range n {
		if from := p.data[c*i:][:c]; from[4] > s.score {
			s.scored(w, from, from[4], from[5:], i)
		}
	}
	return nil
}

// v8 decodes columns of a box and a score per class.
func (s *step) v8(w *worker, p part) error {
	n := p.dims[1]
	classes, err := s.classes("predictions", p.dims[0], 4)
	if err != nil {
		return err
	}
	scores, x, y, wide, high := p.data[4*n:], p.data[:n], p.data[n:][:n], p.data[2*n:][:n], p.data[3*n:][:n]
	if s.multi {
		for class := range classes {
			for i, v := range scores[class*n:][:n] {
				if v > s.score {
					w.add(&s.options, x[i], y[i], wide[i], high[i], v, class, i)
				}
			}
		}
		return nil
	}
	w.top(scores, n, classes, s.score)
	for i, v := range w.best {
		if v > s.score {
			w.add(&s.options, x[i], y[i], wide[i], high[i], v, int(w.class[i]), i)
		}
	}
	return nil
}

// top finds the best class of each of n columns, if its score is above lowest.
func (w *worker) top(scores []float32, n, classes int, lowest float32) {
	w.best, w.class = slices.Grow(w.best[:0], n)[:n], slices.Grow(w.class[:0], n)[:n]
	for i := range w.best {
		w.best[i] = lowest
	}
	for class := range classes {
		for i, v := range scores[class*n:][:n] {
			if v > lowest && v > w.best[i] {
				w.best[i], w.class[i] = v, int32(class)
			}
		}
	}
}

// softmax writes the probabilities of scores to w.best.
func (w *worker) softmax(scores []float32) {
	w.best = slices.Grow(w.best[:0], len(scores))[:len(scores)]
	top := float32(math.Inf(-1))
	for _, v := range scores {
		top = max(top, v)
	}
	sum := 0.0
	for i, v := range scores {
		e := math.Exp(float64(v - top))
		sum += e
		w.best[i] = float32(e)
	}
	for i := range w.best {
		w.best[i] = float32(float64(w.best[i]) / sum)
	}
}

// sigmoids writes the probabilities of scores to w.best, -Inf for those below the threshold.
func (s *step) sigmoids(w *worker, scores []float32) {
	w.best = slices.Grow(w.best[:0], len(scores))[:len(scores)]
	for i, v := range scores {
		if w.best[i] = float32(math.Inf(-1)); v >= s.logit {
			w.best[i] = sigmoid(v)
		}
	}
}

func sigmoid(v float32) float32 { return float32(1 / (1 + math.Exp(-float64(v)))) }

// raw decodes the heads of YOLO v5 (models/yolo.py, Detect.forward): with s the sigmoid of a number,
// the centre of a box is (2s - 0.5 + cell) * stride and its size (2s)^2 * anchor, in pixels.
func (s *step) raw(w *worker, b *backends.Batch, row int) error {
	order := 0
	for i := range s.levels {
		l, p := &s.levels[i], s.row(b, i, row)
		anchors, n := p.dims[0], p.dims[3]
		if anchors != len(l.anchors)/2 {
			return status.Errorf(status.InvalidArg, "input '%s': expected %d anchors, found %d", l.name, len(l.anchors)/2, anchors)
		}
		if _, err := s.classes(l.name, n, 5); err != nil {
			return err
		}
		for a := range anchors {
			for y := range p.dims[1] {
				for x := range p.dims[2] {
					at := ((a*p.dims[1]+y)*p.dims[2] + x) * n
					s.cell(w, l, p.data[at:][:n], a, x, y, order)
					order++
				}
			}
		}
	}
	return nil
}

func (s *step) cell(w *worker, l *level, from []float32, anchor, x, y, order int) {
	if !(from[4] >= s.logit) {
		return
	}
	object := sigmoid(from[4])
	if !(object > s.score) {
		return
	}
	wide, high := 2*sigmoid(from[2]), 2*sigmoid(from[3])
	box := [4]float32{
		(2*sigmoid(from[0]) - 0.5 + float32(x)) * l.stride,
		(2*sigmoid(from[1]) - 0.5 + float32(y)) * l.stride,
		wide * wide * l.anchors[2*anchor],
		high * high * l.anchors[2*anchor+1],
	}
	s.sigmoids(w, from[5:])
	s.scored(w, box[:], object, w.best, order)
}

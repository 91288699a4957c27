package detect

import (
	"context"
	"math"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/steps"
)

// step is detect.
type step struct {
	options
	batched bool
	labels  steps.Labels
	workers pool.Of[worker]
}

func newStep(s *steps.Settings) (steps.Step, error) {
	o, err := parse(s)
	if err != nil {
		return nil, err
	}
	labels, err := s.Labels("labels_file")
	if err != nil {
		return nil, err
	}
	return &step{options: *o, batched: s.MaxBatch > 0, labels: labels}, nil
}

// Run finds the boxes of each row.
//
// hot: once the scratch has grown, only the outputs are allocated.
func (s *step) Run(ctx context.Context, b *backends.Batch) error {
	w := s.workers.Get()
	defer s.workers.Put(w)
	w.found, w.ends = w.found[:0], w.ends[:0]
	for row := range b.Rows {
		if err := ctx.Err(); err != nil {
			return err
		}
		first := len(w.found)
		if err := s.one(w, b, row); err != nil {
			w.found = w.found[:first]
			b.Fail(row, err)
		}
		w.ends = append(w.ends, len(w.found))
	}
	return s.write(b, w)
}

// one finds the boxes of one row.
func (s *step) one(w *worker, b *backends.Batch, row int) error {
	var geometry []float32
	if s.geometry {
		all := tensor.Slice[float32](&b.In[len(b.In)-1])
		geometry = all[row*geometrySize:][:geometrySize]
	}
	var err error
	if w.place, err = s.place(geometry); err != nil {
		return err
	}
	w.list = w.list[:0]
	if err := s.decode(w, b, row); err != nil {
		return err
	}
	first := len(w.found)
	w.suppress(&s.options)
	for i := range w.found[first:] {
		c := &w.found[first+i]
		c.box, _ = w.place.move(&c.box)
	}
	return nil
}

// place maps boxes from the coordinates of the model to those of the outputs.
type place struct {
	unitX, unitY   float64 // pixels of the model's input per unit of its boxes
	scaleX, scaleY float64
	offX, offY     float64
	width, height  float64 // limits of the boxes; 0 for none
}

// place returns the mapping of a row. g is its geometry, or nil.
func (o *options) place(g []float32) (place, error) {
	p := place{unitX: 1, unitY: 1, scaleX: 1, scaleY: 1, width: float64(o.width), height: float64(o.height)}
	switch {
	case o.normalized && o.width > 0:
		p.unitX, p.unitY = p.width, p.height
	case o.normalized: // boxes stay fractions of the image
		p.width, p.height = 1, 1
	}
	if !o.geometry {
		return p, nil
	}
	for i, v := range g {
		if finite := v-v == 0; !finite || i != 2 && i != 3 && v <= 0 {
			return p, status.Errorf(status.InvalidArg,
				"input '%s': expected scales above 0, offsets and a size above 0, found %v", geometryName, g)
		}
	}
	p.scaleX, p.scaleY = float64(g[0]), float64(g[1])
	p.offX, p.offY = float64(g[2]), float64(g[3])
	p.width, p.height = float64(g[4]), float64(g[5])
	return p, nil
}

// move maps a box and cuts it off at the edges. ok is false if nothing is left of it.
func (p *place) move(b *[4]float32) (out [4]float32, ok bool) {
	x0, x1 := (float64(b[0])*p.unitX-p.offX)/p.scaleX, (float64(b[2])*p.unitX-p.offX)/p.scaleX
	y0, y1 := (float64(b[1])*p.unitY-p.offY)/p.scaleY, (float64(b[3])*p.unitY-p.offY)/p.scaleY
	if p.width == 0 {
		return [4]float32{float32(x0), float32(y0), float32(x1), float32(y1)}, true
	}
	x0, x1 = math.Max(x0, 0), math.Min(x1, p.width)
	y0, y1 = math.Max(y0, 0), math.Min(y1, p.height)
	return [4]float32{float32(x0), float32(y0), float32(x1), float32(y1)}, x0 < x1 && y0 < y1
}

// write fills the outputs.
func (s *step) write(b *backends.Batch, w *worker) error {
	n := s.maxDetections
	if s.rows {
		n = 0
		start := 0
		for _, end := range w.ends {
			n, start = max(n, end-start), end
		}
	}
	each := steps.Shape(b, s.batched, int64(n))
	boxes, err := b.Alloc(outBoxes, tensor.FP32, steps.Shape(b, s.batched, int64(n), 4))
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
	count, err := b.Alloc(outCount, tensor.Int32, steps.Shape(b, s.batched, 1))
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

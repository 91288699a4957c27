package detect

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/steps"
)

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

func (s *step) write(b *backends.Batch, w *worker) error {
	n := s.maxDetections
	if s.rows {
		n = 0
		start := 0
		for _, end := range w.ends {
			n, start = max(n, end-start), end
		}
	}
	each, o := steps.Shape(b, s.batched, int64(n)), steps.Outputs{Batch: b}
	boxes := steps.Alloc[float32](&o, outBoxes, tensor.FP32, steps.Shape(b, s.batched, int64(n), 4))
	scores := steps.Alloc[float32](&o, outScores, tensor.FP32, each)
	classes := steps.Alloc[int32](&o, outClasses, tensor.Int32, each)
	counts := steps.Alloc[int32](&o, outCount, tensor.Int32, steps.Shape(b, s.batched, 1))
	if o.Err != nil {
		return o.Err
	}
	start := 0
	for row, end := range w.ends {
		counts[row] = int32(end - start)
		fill(boxes[4*n*row:][:4*n], scores[n*row:][:n], classes[n*row:][:n], w.found[start:end])
		start = end
	}
	return steps.WriteLabels(b, outLabels, each, s.labels, classes)
}

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

// candidate is a box above the score threshold.
type candidate struct {
	box   [4]float32 // left, top, right, bottom in the model's coordinates
	area  float32
	score float32
	class int32
	order int32 // index in the input, which orders equal scores
}

// worker is the scratch memory of a batch in progress.
type worker struct {
	list  []candidate
	place place
	best  []float32 // scratch of the decoders
	class []int32
	found []candidate // of all rows
	ends  []int       // end of each row in found
}

// add adds a box, whose numbers are in the format of o, if it is finite and inside the image.
func (w *worker) add(o *options, a, b, c, d, score float32, class, order int) {
	if !(score <= math.MaxFloat32) {
		return
	}
	box := corners(o.boxes, a, b, c, d)
	if sum := box[0] - box[0] + (box[1] - box[1]) + (box[2] - box[2]) + (box[3] - box[3]); sum != 0 {
		return // one of them is not finite
	}
	if _, ok := w.place.move(&box); !ok {
		return
	}
	if len(w.list) >= 2*o.maxCandidates {
		w.cut(o)
	}
	area := max(box[2]-box[0], 0) * max(box[3]-box[1], 0)
	w.list = append(w.list, candidate{box, area, score, int32(class), int32(order)})
}

// corners returns left, top, right and bottom.
func corners(f boxFormat, a, b, c, d float32) [4]float32 {
	switch f {
	case xywh:
		return [4]float32{a, b, a + c, b + d}
	case cxcywh:
		return [4]float32{a - c/2, b - d/2, a + c/2, b + d/2}
	default:
		return [4]float32{a, b, c, d}
	}
}

// cut sorts the candidates by descending score and keeps the best maxCandidates.
func (w *worker) cut(o *options) {
	slices.SortFunc(w.list, better)
	w.list = w.list[:min(len(w.list), o.maxCandidates)]
}

func better(a, b candidate) int {
	if c := cmp.Compare(b.score, a.score); c != 0 {
		return c
	}
	if c := cmp.Compare(a.order, b.order); c != 0 {
		return c
	}
	return cmp.Compare(a.class, b.class)
}

// suppress appends the candidates that remain, best first, to found.
func (w *worker) suppress(o *options) {
	w.cut(o)
	switch o.nms {
	case "none":
		w.found = append(w.found, w.list[:min(len(w.list), o.maxDetections)]...)
	case "hard":
		w.hard(o)
	default:
		w.lower(o)
	}
}

// hard drops each candidate that overlaps a better one that is not dropped, as torchvision.ops.nms does.
func (w *worker) hard(o *options) {
	first := len(w.found)
next:
	for i := range w.list {
		c := &w.list[i]
		kept := w.found[first:]
		if len(kept) == o.maxDetections {
			return
		}
		for j := range kept {
			k := &kept[j]
			if (k.class == c.class || o.agnostic) && overlap(k, c) > o.iou {
				continue next
			}
		}
		w.found = append(w.found, *c)
	}
}

// lower repeatedly selects the best candidate and lowers the scores of those that overlap it (Soft-NMS).
func (w *worker) lower(o *options) {
	list := w.list
	for n := 0; n < o.maxDetections && len(list) > 0; n++ {
		at := 0
		for i := range list {
			if better(list[i], list[at]) < 0 {
				at = i
			}
		}
		best := list[at]
		w.found = append(w.found, best)
		list[at] = list[len(list)-1]
		list = lowered(o, &best, list[:len(list)-1])
	}
}

// lowered lowers the scores of list and drops candidates below the soft threshold.
func lowered(o *options, best *candidate, list []candidate) []candidate {
	left := list[:0]
	for i := range list {
		c := list[i]
		if o.agnostic || c.class == best.class {
			c.score *= o.factor(overlap(best, &c))
		}
		if c.score >= o.soft {
			left = append(left, c)
		}
	}
	return left
}

// factor returns the factor on a score for the overlap with a better box.
func (o *options) factor(iou float32) float32 {
	switch {
	case o.nms == "gaussian":
		return float32(math.Exp(-float64(iou) * float64(iou) / float64(o.sigma)))
	case iou > o.iou:
		return 1 - iou
	default:
		return 1
	}
}

// overlap returns the intersection over union of two boxes.
func overlap(a, b *candidate) float32 {
	w := min(a.box[2], b.box[2]) - max(a.box[0], b.box[0])
	h := min(a.box[3], b.box[3]) - max(a.box[1], b.box[1])
	if !(w > 0 && h > 0) {
		return 0
	}
	both := w * h
	return both / (a.area + b.area - both)
}

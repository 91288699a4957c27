package detect

import (
	"cmp"
	"math"
	"slices"
)

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

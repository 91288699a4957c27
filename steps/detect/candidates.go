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

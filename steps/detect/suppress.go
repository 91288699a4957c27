package detect

import "math"

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

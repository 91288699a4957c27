package scheduler

import (
	"bytes"
	"cmp"
)

// shapeKey hashes what must agree between works of one batch: which inputs are given
// and their dimensions, apart from the batch dimension and padded ones (FNV-1a over
// words), and how the padded ones compare. Equal keys are compared in full before
// works join, so that a collision costs a smaller batch and no more. elements are
// those of all inputs.
func (r *Runner) shapeKey(w *Task) (key uint64, length int32, elements int64) {
	const offset, prime = 14695981039346656037, 1099511628211
	key = offset
	first := int64(-1)
	for port := range w.In {
		t := &w.In[port]
		if !t.Present() {
			key = (key ^ uint64(port) ^ 1<<63) * prime
			continue
		}
		n := int64(1)
		if r.sig.Inputs[port].Whole {
			key = (key ^ 1<<61) * prime // any shapes are joined
			elements += t.Shape.Elements()
			continue
		}
		pad, whole := r.pad.input(port), r.sig.Inputs[port].ShapeTensor
		if whole {
			key = hashBytes(key, t.Bytes())
		}
		for i, d := range t.Shape.Dims() {
			n *= d
			switch {
			case i == 0 && r.sig.MaxBatch > 0 && !whole:
			case pad != nil && i == pad.dim:
				length = max(length, int32(min(d, 1<<30)))
				key = (key ^ relation(d, &first)) * prime
			default:
				key = (key ^ uint64(d)) * prime
			}
		}
		key = (key ^ 1<<62) * prime
		elements += n
	}
	return key, length, elements
}

// hashBytes continues key over the values of a shape tensor, which are few.
func hashBytes(key uint64, values []byte) uint64 {
	const prime = 1099511628211
	for _, b := range values {
		key = (key ^ uint64(b)) * prime
	}
	return key
}

// relation says how a padded length compares with the first one of its work, which it
// notes, and whether it is empty. Padding must not make up for it: a mask that is too
// short for its ids, or rows without any, must fare in company as they do alone.
func relation(length int64, first *int64) uint64 {
	if *first < 0 {
		*first = length
	}
	r := uint64(cmp.Compare(length, *first) + 1)
	if length == 0 {
		r |= 4
	}
	return r
}

// compatible reports whether two works may share a batch.
func (r *Runner) compatible(a, b *Task) bool {
	firstA, firstB := int64(-1), int64(-1)
	for port := range a.In {
		x, y := &a.In[port], &b.In[port]
		if x.Present() != y.Present() {
			return false
		}
		if !x.Present() {
			continue
		}
		decl := &r.sig.Inputs[port]
		switch {
		case decl.Whole:
			continue
		case x.Shape.Rank() != y.Shape.Rank(), decl.ShapeTensor && !bytes.Equal(x.Bytes(), y.Bytes()):
			return false
		}
		pad, yd := r.pad.input(port), y.Shape.Dims()
		for i, d := range x.Shape.Dims() {
			switch {
			case i == 0 && !decl.ShapeTensor:
			case pad != nil && i == pad.dim:
				if relation(d, &firstA) != relation(yd[i], &firstB) {
					return false
				}
			case d != yd[i]:
				return false
			}
		}
	}
	return true
}

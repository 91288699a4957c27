package batch

import (
	"bytes"
	"cmp"

	"github.com/tutti-server/tutti/scheduler"
)

// Measure sets the task's Shape, Length and Elements. Shape is a hash (FNV-1a over words) of what
// must agree between the tasks of a batch: which inputs are given, their dimensions apart from the
// batch dimension and padded ones, and how the padded ones compare. A queue compares tasks with
// equal hashes in full (Compatible), so that a collision costs a smaller batch and nothing else.
func (r *Runner) Measure(w *scheduler.Task) {
	w.Shape, w.Length, w.Elements = r.measure(w)
}

func (r *Runner) measure(w *scheduler.Task) (key uint64, length int32, elements int64) {
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
		if r.sig.Inputs[port].Unbatched {
			key = (key ^ 1<<61) * prime // any shapes are joined
			elements += t.Shape.Elements()
			continue
		}
		pad, whole := r.s.Padding.input(port), r.sig.Inputs[port].ShapeTensor
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

// hashBytes continues the hash over the few values of a shape tensor.
func hashBytes(key uint64, values []byte) uint64 {
	const prime = 1099511628211
	for _, b := range values {
		key = (key ^ uint64(b)) * prime
	}
	return key
}

// relation returns how a padded length compares with the first one of its task, which it sets, and
// whether it is 0. Padding must not hide a difference: a mask that is shorter than its ids must
// fail in a batch as it does alone.
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

// Uniform reports whether all tasks of the list may share a batch.
func (r *Runner) Uniform(list *scheduler.TaskList) bool {
	for w := list.Head.Next(); w != nil; w = w.Next() {
		if !r.Compatible(list.Head, w) {
			return false
		}
	}
	return true
}

// Compatible reports whether two tasks may share a batch.
func (r *Runner) Compatible(a, b *scheduler.Task) bool {
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
		case decl.Unbatched:
			continue
		case x.Shape.Rank() != y.Shape.Rank(), decl.ShapeTensor && !bytes.Equal(x.Bytes(), y.Bytes()):
			return false
		}
		pad, yd := r.s.Padding.input(port), y.Shape.Dims()
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

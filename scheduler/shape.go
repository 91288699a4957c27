package scheduler

// shapeKey hashes what must agree between works of one batch: which inputs are given
// and their dimensions, apart from the batch dimension and padded ones (FNV-1a over
// words). Equal keys are compared in full before works join, so that a collision
// costs a smaller batch and no more.
func (r *Runner) shapeKey(w *Work) (key uint64, length int32) {
	const offset, prime = 14695981039346656037, 1099511628211
	key = offset
	for port := range w.In {
		t := &w.In[port]
		if !t.Present() {
			key = (key ^ uint64(port) ^ 1<<63) * prime
			continue
		}
		pad := r.pad.input(port)
		for i, d := range t.Shape.Dims() {
			switch {
			case i == 0 && r.sig.MaxBatch > 0:
			case pad != nil && i == pad.dim:
				length = max(length, int32(min(d, 1<<30)))
			default:
				key = (key ^ uint64(d)) * prime
			}
		}
		key = (key ^ 1<<62) * prime
	}
	return key, length
}

// compatible reports whether two works may share a batch.
func (r *Runner) compatible(a, b *Work) bool {
	for port := range a.In {
		x, y := &a.In[port], &b.In[port]
		if x.Present() != y.Present() {
			return false
		}
		if !x.Present() {
			continue
		}
		if x.Shape.Rank() != y.Shape.Rank() {
			return false
		}
		pad, yd := r.pad.input(port), y.Shape.Dims()
		for i, d := range x.Shape.Dims() {
			if i > 0 && d != yd[i] && (pad == nil || i != pad.dim) {
				return false
			}
		}
	}
	return true
}

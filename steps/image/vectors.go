package image

import "github.com/tutti-server/tutti/steps/image/kernels"

// vectors is what the resize of colour pictures takes where the processor has what
// package kernels wants: rows stay bytes.
type vectors struct {
	off  bool // Tests compare with the loops in Go.
	fast bool
	taps kernels.Taps
	of   span   // What taps are for.
	a, b []byte // Two source rows, resampled; or one that is complete down the columns.
}

// set gets ready for a picture; it is false where the loops in Go have to do.
func (v *vectors) set(r *resizer) bool {
	v.fast = !v.off && kernels.Fast() && r.ch == 3 && v.weigh(&r.x)
	if v.fast {
		n := len(r.line) + 1
		if r.downFirst {
			n = max(n, r.to-r.from)
		}
		v.a, v.b = resized(v.a, n), resized(v.b, n)
	}
	return v.fast
}

// weigh brings the weights of the axis along the rows into the order of the vectors,
// unless they are. Rows may be too short for that.
func (v *vectors) weigh(x *axis) bool {
	if v.of == x.span {
		return true
	}
	v.of = span{}
	base := int(x.first[0])
	if !v.taps.Reset(x.end(x.n-1)-base, x.n, x.most()) {
		return false
	}
	for i := range x.n {
		v.taps.Set(i, int(x.first[i])-base, x.taps(i))
	}
	v.of = x.span
	return true
}

// prepare resamples two rows, unless that comes last.
func (v *vectors) prepare(r *resizer, a, b []byte) (x, y []byte) {
	if r.downFirst {
		return a, b
	}
	kernels.Along(v.a, v.b, a, b, &v.taps)
	return v.a, v.b
}

// finish brings sums to the complete row.
func (v *vectors) finish(r *resizer, sum []int32) {
	if !r.downFirst {
		kernels.Round(r.line, sum)
		return
	}
	kernels.Round(v.a, sum)
	kernels.Along(v.b, v.b, v.a, v.a, &v.taps)
	copy(r.line, v.b)
}

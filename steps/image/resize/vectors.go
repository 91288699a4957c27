package resize

import (
	"github.com/tutti-server/tutti/steps/image/kernels"
	"github.com/tutti-server/tutti/steps/image/raster"
)

// vectors resamples images of three channels with AVX2 (package kernels). Rows stay bytes.
type vectors struct {
	fast bool
	taps kernels.Taps
	of   span   // the span of taps
	a, b []byte // two source rows, resampled; or one row complete down the columns
}

// set prepares for an image, and reports false where the loops in Go must be used.
func (v *vectors) set(r *Resizer) bool {
	v.fast = !r.Portable && kernels.Fast() && r.ch == 3 && v.weigh(&r.x)
	if v.fast {
		n := len(r.line) + 1
		if r.downFirst {
			n = max(n, r.to-r.from)
		}
		v.a, v.b = raster.Sized(v.a, n), raster.Sized(v.b, n)
	}
	return v.fast
}

// weigh orders the weights of the axis along the rows as the vector code needs them, unless
// they are. It reports false for rows that are too short.
func (v *vectors) weigh(x *axis) bool {
	if v.of == x.span {
		return true
	}
	v.of = span{}
	base := int(x.first[0])
	if !v.taps.Reset(x.end(x.N-1)-base, x.N, x.most()) {
		return false
	}
	for i := range x.N {
		v.taps.Set(i, int(x.first[i])-base, x.taps(i))
	}
	v.of = x.span
	return true
}

// prepare resamples two rows along the row, unless downFirst is set.
func (v *vectors) prepare(r *Resizer, a, b []byte) (x, y []byte) {
	if r.downFirst {
		return a, b
	}
	kernels.Along(v.a, v.b, a, b, &v.taps)
	return v.a, v.b
}

// finish rounds sums to the complete row, r.line.
func (v *vectors) finish(r *Resizer, sum []int32) {
	if !r.downFirst {
		kernels.Round(r.line, sum)
		return
	}
	kernels.Round(v.a, sum)
	kernels.Along(v.b, v.b, v.a, v.a, &v.taps)
	copy(r.line, v.b)
}

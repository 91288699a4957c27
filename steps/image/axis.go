package image

import (
	"math"
	"slices"
)

// precision is the number of fraction bits of a weight: 32 less 8 for the sample
// less 2 for the sum's head room.
const precision = 32 - 8 - 2

// half rounds a weighted sum.
const half = 1 << (precision - 1)

// span is what an axis maps: in samples resampled to out, of which only the n from
// the given one on are made.
type span struct {
	in, out, from, n int
	extent           float64 // How much of in the outputs cover, from its start on.
	filter           filter
	// sharp leaves the kernel as it is when shrinking: no antialiasing.
	sharp bool
}

// axis holds the filter weights of one axis. Output i, counted from span.from, is
// the sum over j of weight(i, j) times input first[i]+j. Weights are those of
// Pillow's precompute_coeffs: the kernel, stretched by the scale when shrinking,
// divided by its sum.
type axis struct {
	span
	size    int     // Room per output in weights.
	first   []int32 // The first input of each output; never falls.
	count   []int32 // The number of inputs of each output.
	weights []int32 // size per output, in fixed point.
	scratch []float64
	// overlap is the most outputs that are open at once when the inputs come in
	// pairs: begun by an input seen, not yet ended.
	overlap int
	used    int // The sum of all counts.
}

// set computes the weights, or keeps them when they are those of the same span.
func (a *axis) set(s span) {
	if a.span == s {
		return
	}
	a.span = s
	a.first, a.count = resized(a.first, s.n), resized(a.count, s.n)
	if s.filter == nearest {
		a.pick()
	} else {
		a.weigh()
	}
	a.overlap, a.used = a.countOpen(), 0
	for _, n := range a.count {
		a.used += int(n)
	}
}

// pick takes the one input in which each output's centre lies. The position is
// added up as Pillow does, whose rounding shows on long axes; beyond a million
// outputs, which no picture has, it is computed.
func (a *axis) pick() {
	a.size = 1
	a.weights = resized(a.weights, a.n)
	scale := float64(a.in) / float64(a.out)
	at, skip := float64(scale*0.5), a.from
	if skip > 1<<20 {
		at, skip = float64(scale*(float64(skip)+0.5)), 0
	}
	for range skip {
		at += scale
	}
	for i := range a.n {
		a.first[i], a.count[i], a.weights[i] = int32(min(int(at), a.in-1)), 1, 1<<precision
		at += scale
	}
}

func (a *axis) weigh() {
	scale := a.extent / float64(a.out)
	stretch := math.Max(scale, 1)
	if a.sharp {
		stretch = 1
	}
	support := float64(a.filter.support() * stretch)
	a.size = int(math.Ceil(support))*2 + 1
	a.weights = resized(a.weights, a.n*a.size)
	a.scratch = resized(a.scratch, a.size)
	for i := range a.n {
		center := float64((float64(a.from+i) + 0.5) * scale)
		a.fill(i, center, support, 1/stretch)
	}
}

func (a *axis) countOpen() int {
	most, low, high := 0, 0, 0
	for j := int(a.first[0]) &^ 1; low < a.n; j += 2 {
		for high < a.n && int(a.first[high]) <= j+1 {
			high++
		}
		most = max(most, high-low)
		for low < high && a.end(low) <= j+2 {
			low++
		}
	}
	return most
}

// end is the input after the last of output i.
func (a *axis) end(i int) int { return int(a.first[i] + a.count[i]) }

// fill computes the weights of output i. Conversions to float64 forbid fused
// multiply-add.
func (a *axis) fill(i int, center, support, inverse float64) {
	lo := max(int(float64(center-support)+0.5), 0)
	n := min(int(float64(center+support)+0.5), a.in) - lo
	sum := 0.0
	w, weight := a.scratch[:n], filters[a.filter].weight
	for j := range w {
		w[j] = weight(float64((float64(j+lo) - center + 0.5) * inverse))
		sum += w[j]
	}
	a.first[i], a.count[i] = int32(lo), int32(n)
	fixed := a.weights[i*a.size:][:n]
	for j, v := range w {
		if sum != 0 {
			v /= sum
		}
		fixed[j] = int32(math.Copysign(0.5, v) + float64(v*(1<<precision)))
	}
}

// taps gives the weights of output i.
func (a *axis) taps(i int) []int32 {
	return a.weights[i*a.size:][:a.count[i]]
}

// most is the largest number of weights of an output.
func (a *axis) most() int { return int(slices.Max(a.count)) }

// at gives the weight of input j in output i, 0 outside its window.
func (a *axis) at(i, j int) int32 {
	k := j - int(a.first[i])
	if k < 0 || k >= int(a.count[i]) {
		return 0
	}
	return a.weights[i*a.size+k]
}

// resized gives s with n elements, its contents unspecified.
func resized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

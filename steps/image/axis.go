package image

import "math"

// precision is the number of fraction bits of a weight: 32 less 8 for the sample
// less 2 for the sum's head room.
const precision = 32 - 8 - 2

// half rounds a weighted sum.
const half = 1 << (precision - 1)

// axis holds the filter weights that map one axis of in samples onto out
// samples. Output i is the sum over j of weight(i, j) times input first[i]+j.
// Weights are those of Pillow's precompute_coeffs for its bilinear filter: a
// triangle of one source pixel, stretched by the scale when shrinking.
type axis struct {
	in, out int
	size    int      // Room per output in weights.
	first   []int32  // The first input of each output; never falls.
	count   []int32  // The number of inputs of each output.
	weights []uint32 // size per output, in fixed point.
	scratch []float64
	// overlap is the most outputs that are open at once when the inputs come in
	// pairs: begun by an input seen, not yet ended.
	overlap int
}

// set computes the weights, or keeps them when the sizes are as before.
func (a *axis) set(in, out int) {
	if a.in == in && a.out == out {
		return
	}
	scale := float64(in) / float64(out)
	stretch := math.Max(scale, 1)
	a.in, a.out, a.size = in, out, int(math.Ceil(stretch))*2+1
	a.first, a.count = resized(a.first, out), resized(a.count, out)
	a.weights = resized(a.weights, out*a.size)
	a.scratch = resized(a.scratch, a.size)
	for i := range out {
		center := float64((float64(i) + 0.5) * scale)
		a.fill(i, center, stretch)
	}
	a.overlap = a.countOpen()
}

func (a *axis) countOpen() int {
	most, low, high := 0, 0, 0
	for j := 0; j < a.in; j += 2 {
		for high < a.out && int(a.first[high]) <= j+1 {
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
// multiply-add, which would round differently on some processors.
func (a *axis) fill(i int, center, stretch float64) {
	lo := max(int(float64(center-stretch)+0.5), 0)
	n := min(int(float64(center+stretch)+0.5), a.in) - lo
	inverse := 1 / stretch
	sum := 0.0
	w := a.scratch[:n]
	for j := range w {
		d := math.Abs(float64((float64(j+lo) - center + 0.5) * inverse))
		w[j] = max(1-d, 0)
		sum += w[j]
	}
	a.first[i], a.count[i] = int32(lo), int32(n)
	fixed := a.weights[i*a.size:][:n]
	for j, v := range w {
		if sum != 0 {
			v /= sum
		}
		fixed[j] = uint32(0.5 + float64(v*(1<<precision)))
	}
}

// taps gives the weights of output i.
func (a *axis) taps(i int) []uint32 {
	return a.weights[i*a.size:][:a.count[i]]
}

// at gives the weight of input j in output i, 0 outside its window.
func (a *axis) at(i, j int) uint32 {
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

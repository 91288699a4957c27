package pool

import (
	"math"
	"slices"
)

// sum adds the unmasked vectors up and returns their number.
func sum(out []float32, r *row) (n int) {
	clear(out)
	for i, m := range r.mask {
		if m == 0 {
			continue
		}
		n++
		add(out, r.hidden[i*len(out):(i+1)*len(out)])
	}
	return n
}

// add adds v, of the same length, to out.
func add(out, v []float32) {
	for len(out) >= 4 && len(v) >= 4 { // so that no bounds are checked inside
		out[0] += v[0]
		out[1] += v[1]
		out[2] += v[2]
		out[3] += v[3]
		out, v = out[4:], v[4:]
	}
	for j := range out {
		out[j] += v[j]
	}
}

// mean is the sum of the unmasked vectors over their number.
func mean(out []float32, r *row) {
	if n := sum(out, r); n > 0 {
		divide(out, float32(n))
	}
}

// meanSqrt is the sum of the unmasked vectors over the root of their number.
func meanSqrt(out []float32, r *row) {
	if n := sum(out, r); n > 0 {
		divide(out, float32(math.Sqrt(float64(n))))
	}
}

// weightedMean is the weighted mean of the unmasked vectors. Without weights, the weight of a token is its position from 1 on.
func weightedMean(out []float32, r *row) {
	clear(out)
	total := float32(0)
	for i, m := range r.mask {
		if m == 0 {
			continue
		}
		w := float32(i + 1)
		if r.weights != nil {
			w = r.weights[i]
		}
		total += w
		for j, v := range r.hidden[i*len(out) : (i+1)*len(out)] {
			out[j] += w * v
		}
	}
	if total == 0 {
		clear(out)
		return
	}
	divide(out, total)
}

func divide(out []float32, by float32) {
	for j := range out {
		out[j] /= by
	}
}

// first is the first token's vector, masked or not.
func first(out []float32, r *row) {
	clear(out)
	if len(r.mask) > 0 {
		copy(out, r.hidden)
	}
}

// last is the last unmasked token's vector.
func last(out []float32, r *row) {
	clear(out)
	for i, m := range slices.Backward(r.mask) {
		if m != 0 {
			copy(out, r.hidden[i*len(out):])
			return
		}
	}
}

// highest is the element-wise maximum of the unmasked vectors.
func highest(out []float32, r *row) {
	clear(out)
	none := true
	for i, m := range r.mask {
		v := r.hidden[i*len(out) : (i+1)*len(out)]
		switch {
		case m == 0:
		case none:
			copy(out, v)
			none = false
		default:
			for j := range v {
				out[j] = max(out[j], v[j])
			}
		}
	}
}

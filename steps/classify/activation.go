package classify

import "math"

// The operations.
const (
	opSoftmax    = "softmax"
	opLogSoftmax = "log_softmax"
	opSigmoid    = "sigmoid"
	opArgMax     = "arg_max"
	opRaw        = "raw"
)

// Parts of the exponential: e^x is 2^(n/32) * e^r, where n is an integer and r at most
// ln(2)/64 from 0, so that four terms of the series are good to 1e-9 (P. T. P. Tang,
// "Table-driven implementation of the exponential function in IEEE floating-point
// arithmetic", 1989).
const (
	splits  = 32
	perUnit = splits / math.Ln2
	// Ln2/splits in two parts: the first has so few bits that n times it is exact.
	unitHigh = 0x1.62e42fefap-6
	unitLow  = math.Ln2/splits - unitHigh
	// shifter added to a small number leaves its integer in the lowest bits.
	shifter = 3 << 51
	// lowest is where powers end; FP32 ends at -104.
	lowest = -700
)

// powers are 2^(i/splits).
var powers = func() (p [splits]float64) {
	for i := range p {
		p[i] = math.Exp2(float64(i) / splits)
	}
	return p
}()

// power is e^x for x from -lowest to lowest. It is small enough to be inlined.
func power(x float64) float64 {
	shifted := x*perUnit + shifter
	n := shifted - shifter
	r := x - n*unitHigh - n*unitLow
	bits := int64(math.Float64bits(shifted)) << 13 >> 13 // The integer n, with its sign.
	v := powers[bits&(splits-1)] * (1 + r*(1+r*(1.0/2+r*(1.0/6))))
	return math.Float64frombits(math.Float64bits(v) + uint64(bits>>5<<52))
}

// exp is e^x for x of at most 0; it is 0 for NaN.
func exp(x float64) float64 {
	if !(x >= lowest) {
		return 0
	}
	return power(x)
}

// sigmoid is 1/(1+e^-v), of NaN NaN.
func sigmoid(v float32) float32 {
	switch {
	case v < lowest:
		return 0
	case v <= -lowest:
		return float32(1 / (1 + power(-float64(v))))
	case v > 0:
		return 1
	}
	return v
}

// highest is the largest score that is not NaN; -Inf when there is none.
func highest(scores []float32) float32 {
	top := float32(math.Inf(-1))
	for _, v := range scores {
		if v > top {
			top = v
		}
	}
	return top
}

// total is the sum of all weights; NaN weighs nothing.
func total(scores []float32, top float64) float64 {
	sum := 0.0
	if math.IsInf(top, 0) {
		for _, v := range scores {
			if float64(v) == top {
				sum++
			}
		}
		return sum
	}
	for _, v := range scores {
		sum += exp(float64(v) - top)
	}
	return sum
}

// weight is e^(v-top), and its limits where that has none: infinities of the same sign
// weigh the same. That of NaN is NaN.
func weight(v float32, top float64) float64 {
	switch x := float64(v); {
	case x == top:
		return 1
	case v != v:
		return x
	case math.IsInf(top, 0):
		return 0
	default:
		return exp(x - top)
	}
}

// pick gives values the probabilities of the classes idx, the best of all.
func pick(values []float32, idx []int32, scores []float32) {
	top := float64(scores[idx[0]]) // NaN only when every score is.
	sum := total(scores, top)
	for i, class := range idx {
		values[i] = float32(weight(scores[class], top) / sum)
	}
}

// softmax gives every class its probability.
func softmax(values, scores []float32) {
	top := float64(highest(scores))
	if math.IsInf(top, 0) {
		sum := total(scores, top)
		for i, v := range scores {
			values[i] = float32(weight(v, top) / sum)
		}
		return
	}
	sum := 0.0
	values = values[:len(scores)]
	for i, v := range scores {
		e := 0.0
		if x := float64(v) - top; x >= lowest {
			e = power(x)
		}
		sum += e
		values[i] = float32(e)
	}
	scale := float32(1 / sum)
	for i, v := range scores {
		if values[i] *= scale; v != v {
			values[i] = v
		}
	}
}

// logSoftmax gives every class the logarithm of its probability.
func logSoftmax(values, scores []float32) {
	top := float64(highest(scores))
	log := math.Log(total(scores, top))
	for i, v := range scores {
		x := float64(v) - top
		if float64(v) == top {
			x = 0
		}
		values[i] = float32(x - log)
	}
}

// sigmoids gives every class its own probability.
func sigmoids(values, scores []float32) {
	for i, v := range scores {
		values[i] = sigmoid(v)
	}
}

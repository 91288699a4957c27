package forest

import (
	"math"
	"slices"
)

// Function is a function of the sums of a row.
type Function uint8

// The functions, by treelite's names for them.
const (
	Identity      Function = iota
	SignedSquare           // x*|x|
	Hinge                  // 1 for x > 0, else 0
	Sigmoid                // 1/(1+exp(-A*x))
	Exponential            // exp(x)
	StandardRatio          // exp2(-x/A), the score of isolation forests
	LogOnePlusExp          // log(1+exp(x))
	Softmax                // of the outputs of a row
	Ascending              // the outputs of a row, sorted: quantiles do not cross
)

// Link turns sums into predictions.
type Link struct {
	Function Function
	// A is the parameter of Sigmoid and of StandardRatio.
	A float64
}

// check refuses a function without its parameter.
func (l *Link) check(outputs int) error {
	if (l.Function == Sigmoid || l.Function == StandardRatio) && !(math.Abs(l.A) > 0 && !math.IsInf(l.A, 0)) {
		return invalid("the parameter of the prediction's function is %v, expected a finite number that is not 0", l.A)
	}
	if l.Function == Softmax && outputs < 2 {
		return invalid("the model has softmax over %d classes, expected at least 2", outputs)
	}
	return nil
}

// apply replaces the sums of rows by predictions. outputs is the length of a row. Without double it rounds to FP32 where XGBoost and
// treelite do, so that mostly all bits are theirs.
func (l *Link) apply(x []float64, outputs int, double bool) {
	switch l.Function {
	case Sigmoid:
		for i, v := range x {
			if e := math.Exp(-l.A * v); double {
				x[i] = 1 / (1 + e)
			} else {
				x[i] = float64(1 / (1 + float32(e)))
			}
		}
	case Softmax:
		for ; len(x) > 0; x = x[outputs:] {
			if double {
				softmax(x[:outputs])
			} else {
				softmax32(x[:outputs])
			}
		}
	default:
		l.each(x, outputs)
	}
	if !double && l.Function != Identity {
		for i, v := range x {
			x[i] = float64(float32(v))
		}
	}
}

// each applies the functions that need no rounding between their steps.
func (l *Link) each(x []float64, outputs int) {
	switch l.Function {
	case Identity:
	case SignedSquare:
		for i, v := range x {
			x[i] = v * math.Abs(v)
		}
	case Hinge:
		for i, v := range x {
			x[i] = 0
			if v > 0 {
				x[i] = 1
			}
		}
	case Exponential:
		for i, v := range x {
			x[i] = math.Exp(v)
		}
	case StandardRatio:
		for i, v := range x {
			x[i] = math.Exp2(-v / l.A)
		}
	case LogOnePlusExp:
		for i, v := range x {
			x[i] = math.Log1p(math.Exp(v))
		}
	case Ascending:
		for ; len(x) > 0; x = x[outputs:] {
			slices.Sort(x[:outputs])
		}
	}
}

// softmax32 is softmax as XGBoost computes it: in FP32, but for the sum.
func softmax32(x []float64) {
	most, sum := math.Inf(-1), 0.0
	for _, v := range x {
		most = max(most, v)
	}
	for i, v := range x {
		x[i] = float64(float32(math.Exp(float64(float32(v - most)))))
		sum += x[i]
	}
	for i, v := range x {
		x[i] = float64(float32(v) / float32(sum))
	}
}

// softmax replaces the sums of one row by their softmax.
func softmax(x []float64) {
	most, sum := math.Inf(-1), 0.0
	for _, v := range x {
		most = max(most, v)
	}
	for i, v := range x {
		x[i] = math.Exp(v - most)
		sum += x[i]
	}
	for i := range x {
		x[i] /= sum
	}
}

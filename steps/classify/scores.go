package classify

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
)

const (
	outIndex = iota
	outValue
	outLabel
)

// NewScoresFactory declares the step scores.
//
// Input scores is FP32 [-1], one per class. softmax, log_softmax and sigmoid give values FP32 [-1], one per class; sums
// are in float64 after the largest score is subtracted. arg_max gives index INT64 [1] and value FP32 [1] of the first
// of the largest scores, and with labels_file label BYTES [1]. Scores are divided by the temperature before softmax and
// log_softmax. NaN stays NaN, counts as probability 0 for the others and is the largest score only if all are NaN. If
// scores are +Inf, they share the whole probability. At a device sums are added in another order: a value may differ by 2 units in the
// last place.
func NewScoresFactory() steps.Factory {
	return steps.Factory{
		Name: "scores",
		Doc: "Converts the scores of all classes to probabilities (softmax, log_softmax, sigmoid), or returns the first of the largest " +
			"scores with its index and label (arg_max). A NaN score stays NaN and counts as probability 0 for the others.",
		Params: []steps.Param{
			{Key: "op", Doc: "The operation.", Default: opSoftmax, Values: []string{opSoftmax, opLogSoftmax, opSigmoid, opArgMax}},
			{Key: "temperature", Doc: "Divisor of the scores before softmax and log_softmax.", Default: "1"},
			{Key: "labels_file", Doc: "For arg_max: text file with one label per line, in the version folder or the model folder.", Sample: "labels.txt"},
		},
		Examples: []steps.Example{
			{
				Config:  steps.ExampleConfig("", "scores", "op", "softmax"),
				Request: `{"inputs": [{"name": "scores", "datatype": "FP32", "shape": [3], "data": [0.5, 2, 1]}]}`,
			},
			{
				Config:  steps.ExampleConfig("max_batch_size: 8", "scores", "op", "arg_max", "labels_file", "labels.txt"),
				Files:   map[string][]byte{"labels.txt": []byte(threeLabels)},
				Request: `{"inputs": [{"name": "scores", "datatype": "FP32", "shape": [2, 3], "data": [0.5, 2, 1, 7, 0, 7]}]}`,
			},
		},
		Inline:    true,
		Signature: scoresSignature,
		New:       newScores,
	}
}

func scoresSignature(s *steps.Settings) (*config.Signature, error) {
	sig := &config.Signature{Inputs: []config.Port{{Name: "scores", DType: tensor.FP32, Dims: tensor.Of(-1)}}}
	if s.Params["op"] != opArgMax {
		sig.Outputs = []config.Port{{Name: "values", DType: tensor.FP32, Dims: tensor.Of(-1)}}
		return sig, nil
	}
	sig.Outputs = []config.Port{
		outIndex: {Name: "index", DType: tensor.Int64, Dims: tensor.Of(1)},
		outValue: {Name: "value", DType: tensor.FP32, Dims: tensor.Of(1)},
	}
	if s.Params["labels_file"] != "" {
		sig.Outputs = append(sig.Outputs, config.Port{Name: "label", DType: tensor.Bytes, Dims: tensor.Of(1)})
	}
	return sig, nil
}

// scores is the step "scores" for all operations but arg_max.
type scores struct {
	op          string
	run         func(values, scores []float32)
	temperature float32
}

func newScores(s *steps.Settings) (steps.Step, error) {
	t, err := s.Float("temperature")
	if err != nil {
		return nil, err
	}
	op := s.Params["op"]
	if !(float32(t) > 0) {
		return nil, fmt.Errorf("parameter 'temperature' of model '%s' is '%s', expected a number above 0", s.Model, s.Params["temperature"])
	}
	if soft := op == opSoftmax || op == opLogSoftmax; !soft && t != 1 {
		return nil, fmt.Errorf("parameter 'temperature' of model '%s' has no meaning with op '%s'", s.Model, op)
	}
	if op == opArgMax {
		labels, err := readLabels(s, 1)
		if err != nil {
			return nil, err
		}
		out := &argMax{step{options: options{k: 1}, batched: s.MaxBatch > 0, labels: labels}}
		return out, s.CheckWidth(out.top.check)
	}
	if s.Params["labels_file"] != "" {
		return nil, fmt.Errorf("parameter 'labels_file' of model '%s' has no meaning with op '%s'", s.Model, op)
	}
	run := map[string]func(values, scores []float32){opSoftmax: softmax, opLogSoftmax: logSoftmax, opSigmoid: sigmoids}[op]
	return &scores{op, run, float32(t)}, nil
}

// Run converts each row.
//
// hot: only the output is allocated.
func (s *scores) Run(_ context.Context, b *backends.Batch) error {
	in := &b.In[0]
	t, err := b.Alloc(0, tensor.FP32, in.Shape)
	if err != nil {
		return err
	}
	from, to := tensor.Slice[float32](in), tensor.Slice[float32](t)
	if s.temperature != 1 {
		for i, v := range from {
			to[i] = v / s.temperature
		}
		from = to
	}
	classes := int(in.Shape.Dim(in.Shape.Rank() - 1))
	for ; len(from) > 0; from, to = from[classes:], to[classes:] {
		s.run(to[:classes], from[:classes])
	}
	return nil
}

// argMax is the step scores with op arg_max.
type argMax struct {
	top step // for its check and its labels
}

// Run finds the best class of each row.
//
// hot: only the outputs are allocated.
func (s *argMax) Run(_ context.Context, b *backends.Batch) error {
	in := &b.In[0]
	classes := int(in.Shape.Dim(in.Shape.Rank() - 1))
	if classes == 0 {
		return status.Errorf(status.InvalidArg, "input 'scores': expected at least 1 class, found 0")
	}
	if err := s.top.check(classes); err != nil {
		return err
	}
	shape, o := steps.Shape(b, s.top.batched, 1), steps.Outputs{Batch: b}
	indices := steps.Alloc[int64](&o, outIndex, tensor.Int64, shape)
	values := steps.Alloc[float32](&o, outValue, tensor.FP32, shape)
	if o.Err != nil {
		return o.Err
	}
	from := tensor.Slice[float32](in)
	for row := range b.Rows {
		from := from[row*classes:][:classes]
		at := first(from)
		indices[row], values[row] = int64(at), from[at]
	}
	return steps.WriteLabels(b, outLabel, shape, s.top.labels, indices)
}

// first returns the index of the first of the largest scores.
func first(scores []float32) int {
	at := max(0, slices.IndexFunc(scores, func(v float32) bool { return v == v })) // NaN differs from itself
	top := scores[at]
	for i, v := range scores {
		if v > top {
			top, at = v, i
		}
	}
	return at
}

const (
	opSoftmax    = "softmax"
	opLogSoftmax = "log_softmax"
	opSigmoid    = "sigmoid"
	opArgMax     = "arg_max"
	opRaw        = "raw"
)

// Constants of the exponential: e^x is 2^(n/32) * e^r, where n is an integer and r at most ln(2)/64
// in size, so that four terms of the series have an error of 1e-9 (P. T. P. Tang, "Table-driven
// implementation of the exponential function in IEEE floating-point arithmetic", 1989).
const (
	splits  = 32
	perUnit = splits / math.Ln2
	// Ln2/splits in two parts: the first has so few bits that n times it is exact.
	unitHigh = 0x1.62e42fefap-6
	unitLow  = math.Ln2/splits - unitHigh
	// shifter, when added to a small number, leaves its integer part in the lowest bits.
	shifter = 3 << 51
	// lowest is the smallest exponent of powers; that of FP32 is -104.
	lowest = -700
)

// powers has 2^(i/splits).
var powers = func() (p [splits]float64) {
	for i := range p {
		p[i] = math.Exp2(float64(i) / splits)
	}
	return p
}()

// power returns e^x for x from lowest to -lowest. It is small enough to be inlined.
func power(x float64) float64 {
	shifted := x*perUnit + shifter
	n := shifted - shifter
	r := x - n*unitHigh - n*unitLow
	bits := int64(math.Float64bits(shifted)) << 13 >> 13 // the integer n, with its sign
	v := powers[bits&(splits-1)] * (1 + r*(1+r*(1.0/2+r*(1.0/6))))
	return math.Float64frombits(math.Float64bits(v) + uint64(bits>>5<<52))
}

// exp returns e^x for x of at most 0, and 0 for NaN.
func exp(x float64) float64 {
	if !(x >= lowest) {
		return 0
	}
	return power(x)
}

// sigmoid returns 1/(1+e^-v), and NaN for NaN.
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

// highest returns the largest score that is not NaN, -Inf if there is none.
func highest(scores []float32) float32 {
	top := float32(math.Inf(-1))
	for _, v := range scores {
		if v > top {
			top = v
		}
	}
	return top
}

// total returns the sum of all weights. NaN counts as 0.
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

// weight returns e^(v-top). Infinities of the same sign as top have weight 1, NaN has weight NaN.
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

// pick writes the probabilities of the classes idx, the best ones, to values.
func pick(values []float32, idx []int32, scores []float32) {
	top := float64(scores[idx[0]]) // NaN only if every score is
	sum := total(scores, top)
	for i, class := range idx {
		values[i] = float32(weight(scores[class], top) / sum)
	}
}

// softmax writes the probability of every class. values may be scores.
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
		if values[i] = float32(e); v != v {
			values[i] = v
		}
	}
	scale := float32(1 / sum)
	for i := range values {
		values[i] *= scale
	}
}

// logSoftmax writes the logarithm of the probability of every class.
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

func sigmoids(values, scores []float32) {
	for i, v := range scores {
		values[i] = sigmoid(v)
	}
}

// ranks reports whether class a comes before class b: by descending score, then by index, NaN last.
func ranks(scores []float32, a, b int32) bool {
	x, y := scores[a], scores[b]
	switch {
	case x > y:
		return true
	case x < y:
		return false
	case x == y:
		return a < b
	}
	xNaN, yNaN := math.IsNaN(float64(x)), math.IsNaN(float64(y))
	if xNaN != yNaN {
		return yNaN
	}
	return a < b
}

// best writes the best classes to idx, in order. There must be at least len(idx) scores. A heap with the
// worst selected class on top bounds the time to n log k for every order of the scores.
func best(idx []int32, scores []float32) {
	k := len(idx)
	for i := range idx {
		idx[i] = int32(i)
	}
	for i := k/2 - 1; i >= 0; i-- {
		sink(idx, scores, i)
	}
	for i := k; i < len(scores); i++ {
		if ranks(scores, int32(i), idx[0]) {
			idx[0] = int32(i)
			sink(idx, scores, 0)
		}
	}
	for n := k - 1; n > 0; n-- {
		idx[0], idx[n] = idx[n], idx[0]
		sink(idx[:n], scores, 0)
	}
}

// sink moves element i of the heap down until no element below it is worse.
func sink(idx []int32, scores []float32, i int) {
	for {
		worst := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(idx); child++ {
			if ranks(scores, idx[worst], idx[child]) {
				worst = child
			}
		}
		if worst == i {
			return
		}
		idx[i], idx[worst] = idx[worst], idx[i]
		i = worst
	}
}

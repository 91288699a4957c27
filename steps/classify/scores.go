package classify

import (
	"context"
	"fmt"
	"math"

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
// scores are +Inf, they share the whole probability.
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
		Examples:  scoresExamples(),
		Inline:    true,
		Signature: scoresSignature,
		New:       newScores,
	}
}

func scoresSignature(s *steps.Settings) (*config.Signature, error) {
	sig := &config.Signature{Inputs: []config.Port{{Name: inputName, DType: tensor.FP32, Dims: tensor.Of(-1)}}}
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
		return newArgMax(s)
	}
	if s.Params["labels_file"] != "" {
		return nil, fmt.Errorf("parameter 'labels_file' of model '%s' has no meaning with op '%s'", s.Model, op)
	}
	run := map[string]func(values, scores []float32){opSoftmax: softmax, opLogSoftmax: logSoftmax, opSigmoid: sigmoids}[op]
	return &scores{run, float32(t)}, nil
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

func newArgMax(s *steps.Settings) (steps.Step, error) {
	labels, err := readLabels(s, 1)
	if err != nil {
		return nil, err
	}
	out := &argMax{step{options: options{k: 1}, batched: s.MaxBatch > 0, labels: labels}}
	return out, s.CheckWidth(out.top.check)
}

// Run finds the best class of each row.
//
// hot: only the outputs are allocated.
func (s *argMax) Run(_ context.Context, b *backends.Batch) error {
	in := &b.In[0]
	classes := int(in.Shape.Dim(in.Shape.Rank() - 1))
	if classes == 0 {
		return status.Errorf(status.InvalidArg, "input '%s': expected at least 1 class, found 0", inputName)
	}
	if err := s.top.check(classes); err != nil {
		return err
	}
	shape := steps.Shape(b, s.top.batched, 1)
	x, err := b.Alloc(outIndex, tensor.Int64, shape)
	if err != nil {
		return err
	}
	v, err := b.Alloc(outValue, tensor.FP32, shape)
	if err != nil {
		return err
	}
	from, indices, values := tensor.Slice[float32](in), tensor.Slice[int64](x), tensor.Slice[float32](v)
	for row := range b.Rows {
		from := from[row*classes:][:classes]
		at := first(from)
		indices[row], values[row] = int64(at), from[at]
	}
	return steps.WriteLabels(b, outLabel, shape, s.top.labels, indices)
}

// first returns the index of the first of the largest scores.
func first(scores []float32) int {
	at := 0
	for at < len(scores)-1 && math.IsNaN(float64(scores[at])) {
		at++
	}
	top := scores[at]
	if math.IsNaN(float64(top)) {
		return 0
	}
	for i := at + 1; i < len(scores); i++ {
		if v := scores[i]; v > top {
			top, at = v, i
		}
	}
	return at
}

// Package classify holds the steps that process the scores of a classifier: top_k returns the best classes with their
// probabilities and labels; scores converts the scores of all classes to probabilities or returns the best class.
//
// For example, top_k with k 2 on the scores 0.5, 2, 1 gives values 0.629, 0.231 and indices 1, 2.
package classify

import (
	"context"
	"math"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
)

const (
	outValues = iota
	outIndices
	outLabels
)

// NewFactory declares the step top_k.
//
// Input scores is FP32 [-1], one per class. Outputs are values FP32 [k] in descending order, indices INT32 [k], the
// classes, and with labels_file labels BYTES [k]. Equal scores keep the order of their classes. With softmax the values
// are probabilities over all classes, summed in float64 after the largest score is subtracted. With sigmoid each class
// has an independent probability, as in multi-label models. NaN scores come last, stay NaN and count as probability 0
// for the others. If scores are +Inf, they share the whole probability of a softmax.
//
// With a threshold, classes with a smaller value or NaN become value 0, index -1 and an empty
// label, and there is one more output, count INT32 [1]: the number of the other classes. At a device the sum of a softmax is added in
// another order: a value may differ by 2 units in the last place.
func NewFactory() steps.Factory {
	return steps.Factory{
		Name: "top_k",
		Doc: "Returns the k best classes of a classifier with their probabilities, indices and labels. With a " +
			"threshold, for models of several labels, classes below it have index -1, value 0 and an empty label.",
		Params: []steps.Param{
			{Key: "k", Doc: "Number of classes to return; a request with fewer classes is refused.", Default: "5"},
			{Key: "softmax", Doc: "Converts the scores to probabilities.", Default: "true", Values: []string{"true", "false"}},
			{Key: "activation", Doc: "Function that converts scores to values; auto follows the parameter softmax.", Default: "auto", Values: []string{"auto", opSoftmax, opSigmoid, opRaw}},
			{Key: "threshold", Doc: "Smallest value of a class that is returned, or none; a number adds the output count.", Default: "none"},
			{Key: "labels_file", Doc: "Text file with one label per line, in the version folder or the model folder.", Sample: "labels.txt"},
		},
		Examples: []steps.Example{
			{
				Config:  steps.ExampleConfig("", "top_k", "k", "2", "labels_file", "labels.txt"),
				Files:   map[string][]byte{"labels.txt": []byte(threeLabels)},
				Request: `{"inputs": [{"name": "scores", "datatype": "FP32", "shape": [3], "data": [0.5, 2, 1]}]}`,
			},
			{
				Config:  steps.ExampleConfig("max_batch_size: 8", "top_k", "k", "3", "activation", "sigmoid", "threshold", "0.5", "labels_file", "labels.txt"),
				Files:   map[string][]byte{"labels.txt": []byte(threeLabels)},
				Request: `{"inputs": [{"name": "scores", "datatype": "FP32", "shape": [1, 3], "data": [1.5, -2, 3]}]}`,
			},
		},
		Inline:    true,
		Signature: signature,
		New:       newStep,
	}
}

func signature(s *steps.Settings) (*config.Signature, error) {
	o, err := parse(s)
	if err != nil {
		return nil, err
	}
	k := tensor.Of(int64(o.k))
	sig := &config.Signature{
		Inputs: []config.Port{{Name: "scores", DType: tensor.FP32, Dims: tensor.Of(-1)}},
		Outputs: []config.Port{
			outValues:  {Name: "values", DType: tensor.FP32, Dims: k},
			outIndices: {Name: "indices", DType: tensor.Int32, Dims: k},
		},
	}
	if s.Params["labels_file"] != "" {
		sig.Outputs = append(sig.Outputs, config.Port{Name: "labels", DType: tensor.Bytes, Dims: k})
	}
	if o.cut {
		sig.Outputs = append(sig.Outputs, config.Port{Name: "count", DType: tensor.Int32, Dims: tensor.Of(1)})
	}
	return sig, nil
}

const threeLabels = "cat\ndog\nfox\n"

type options struct {
	k          int
	activation string
	threshold  float32
	cut        bool // a threshold is set
}

type step struct {
	options
	batched bool
	labels  steps.Labels
}

func parse(s *steps.Settings) (options, error) {
	o := options{activation: s.Params["activation"], cut: s.Params["threshold"] != "none"}
	k, err := s.Int("k", 1)
	if err != nil {
		return o, err
	}
	if k > math.MaxInt32 {
		return o, status.Errorf(status.InvalidArg, "parameter 'k' of model '%s' is %d, expected at most %d", s.Model, k, math.MaxInt32)
	}
	o.k = k
	p := steps.Reader{Settings: s}
	if o.cut {
		o.threshold = p.Float("threshold")
	}
	if o.activation == "auto" {
		if o.activation = opRaw; s.Params["softmax"] == "true" {
			o.activation = opSoftmax
		}
	}
	return o, p.Err
}

func newStep(s *steps.Settings) (steps.Step, error) {
	o, err := parse(s)
	if err != nil {
		return nil, err
	}
	labels, err := readLabels(s, o.k)
	if err != nil {
		return nil, err
	}
	out := &step{options: o, batched: s.MaxBatch > 0, labels: labels}
	return out, s.CheckWidth(out.check)
}

// Run ranks the classes of each row.
//
// hot: only the outputs are allocated.
func (s *step) Run(_ context.Context, b *backends.Batch) error {
	in := &b.In[0]
	classes := int(in.Shape.Dim(in.Shape.Rank() - 1))
	if err := s.check(classes); err != nil {
		return err
	}
	shape, o := steps.Shape(b, s.batched, int64(s.k)), steps.Outputs{Batch: b}
	values := steps.Alloc[float32](&o, outValues, tensor.FP32, shape)
	indices := steps.Alloc[int32](&o, outIndices, tensor.Int32, shape)
	var counts []int32
	if s.cut { // the last output
		counts = steps.Alloc[int32](&o, len(b.Out)-1, tensor.Int32, steps.Shape(b, s.batched, 1))
	}
	if o.Err != nil {
		return o.Err
	}
	scores := tensor.Slice[float32](in)
	for row := range b.Rows {
		v, x := values[row*s.k:][:s.k], indices[row*s.k:][:s.k]
		s.row(v, x, scores[row*classes:][:classes])
		if s.cut {
			counts[row] = cut(v, x, s.threshold)
		}
	}
	return steps.WriteLabels(b, outLabels, shape, s.labels, indices)
}

// cut clears the classes below the threshold and returns the number of the others.
func cut(values []float32, indices []int32, threshold float32) int32 {
	n := len(values)
	for n > 0 && !(values[n-1] >= threshold) { // NaN, too: they are last
		n--
		values[n], indices[n] = 0, -1
	}
	return int32(n)
}

// check returns an error for a number of classes that does not fit k or the labels.
func (s *step) check(classes int) error {
	switch {
	case classes < s.k:
		return status.Errorf(status.InvalidArg, "input 'scores': expected at least k = %d classes, found %d", s.k, classes)
	case classes > math.MaxInt32:
		return status.Errorf(status.InvalidArg, "input 'scores': expected at most %d classes, found %d", math.MaxInt32, classes)
	case s.labels != nil && classes > len(s.labels):
		return status.Errorf(status.InvalidArg, "input 'scores': expected at most %d classes, one per line of labels_file, found %d", len(s.labels), classes)
	}
	return nil
}

func (s *step) row(values []float32, indices []int32, scores []float32) {
	best(indices, scores)
	if s.activation == opSoftmax {
		pick(values, indices, scores)
		return
	}
	for i, class := range indices {
		if values[i] = scores[class]; s.activation == opSigmoid {
			values[i] = sigmoid(values[i])
		}
	}
}

// readLabels returns the labels of the configured file, nil if there is none. The file must have at least k lines.
func readLabels(s *steps.Settings, k int) (steps.Labels, error) {
	labels, err := s.Labels("labels_file")
	if err == nil && labels != nil && len(labels) < k {
		err = config.WithFix(config.Errorf(config.StepParam, "parameters.labels_file", "labels file '%s' of model '%s': expected at least k = %d lines, found %d",
			s.Params["labels_file"], s.Model, k, len(labels)), "write a label on a line for every class, or choose fewer by the parameter k")
	}
	return labels, err
}

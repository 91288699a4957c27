package classify

import (
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
)

const (
	outValues = iota
	outIndices
	outLabels // the count, if there are no labels
)

// Values of parameters: auto follows another parameter, noThreshold is none.
const (
	auto        = "auto"
	noThreshold = "none"
)

// inputName is the name of the input.
const inputName = "scores"

// NewFactory declares the step top_k.
//
// Input scores is FP32 [-1], one per class. Outputs are values FP32 [k] in descending order,
// indices INT32 [k], the classes, and with labels_file labels BYTES [k]. Equal scores keep the
// order of their classes. With softmax the values are probabilities over all classes, summed in
// float64 after the largest score is subtracted. With sigmoid each class has an independent
// probability, as in multi-label models. NaN scores come last, stay NaN and count as probability
// 0 for the others. If scores are +Inf, they share the whole probability of a softmax.
//
// With a threshold, classes with a smaller value or NaN become value 0, index -1 and an empty
// label, and there is one more output, count INT32 [1]: the number of the other classes.
func NewFactory() steps.Factory {
	return steps.Factory{
		Name: "top_k",
		Doc: "Returns the k best classes of a classifier with their probabilities, indices and labels. With a " +
			"threshold, for models of several labels, classes below it have index -1, value 0 and an empty label.",
		Params: []steps.Param{
			{Key: "k", Doc: "Number of classes to return; a request with fewer classes is refused.", Default: "5"},
			{Key: "softmax", Doc: "Converts the scores to probabilities.", Default: "true", Values: []string{"true", "false"}},
			{Key: "activation", Doc: "Function that converts scores to values; auto follows the parameter softmax.", Default: auto, Values: []string{auto, opSoftmax, opSigmoid, opRaw}},
			{Key: "threshold", Doc: "Smallest value of a class that is returned, or none; a number adds the output count.", Default: noThreshold},
			{Key: "labels_file", Doc: "Text file with one label per line, in the version folder or the model folder.", Sample: "labels.txt"},
		},
		Examples:  topKExamples(),
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
		Inputs: []config.Port{{Name: inputName, DType: tensor.FP32, Dims: tensor.Of(-1)}},
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

package classify

import (
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
)

const (
	outValues = iota
	outIndices
	outLabels // The count, when there are no labels.
)

// Values of parameters that leave something to another or out.
const (
	auto        = "auto"
	noThreshold = "none"
)

// inputName is the scores' name.
const inputName = "scores"

// NewFactory declares the step top_k.
//
// Input scores is FP32 [-1], one per class. Outputs are values FP32 [k], falling;
// indices INT32 [k], the class numbers; and, when labels_file is set, labels
// BYTES [k]. Equal scores keep the order of their classes. With softmax the values
// are probabilities over all classes, summed in float64 after the largest score is
// subtracted; with sigmoid each class has its own, as in multi-label models. NaN
// scores come last, stay NaN and count as probability 0 for the others; when a score
// is +Inf, such scores share the whole probability of a softmax.
//
// With a threshold, classes whose value is not at least that give value 0, index -1
// and an empty label, and one more output, count INT32 [1], says how many are left.
func NewFactory() steps.Factory {
	return steps.Factory{
		Name: "top_k",
		Doc: "Picks the k best classes of a classifier's scores and gives their probabilities, indices and labels. With a " +
			"threshold, as models of several labels need, places that no class reaches have index -1, value 0 and an empty label.",
		Params: []steps.Param{
			{Key: "k", Doc: "How many classes to give; a request with fewer classes is refused.", Default: "5"},
			{Key: "softmax", Doc: "Turns the scores into probabilities.", Default: "true", Values: []string{"true", "false"}},
			{Key: "activation", Doc: "What makes values of scores; auto does as softmax says.", Default: auto, Values: []string{auto, opSoftmax, opSigmoid, opRaw}},
			{Key: "threshold", Doc: "Smallest value of a class that is given, or none; a number adds the output count.", Default: noThreshold},
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

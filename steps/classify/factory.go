// Package classify holds the step top_k: scores of classes in, the best of them
// out, with probabilities and labels.
package classify

import (
	"tutti/core/config"
	"tutti/core/tensor"
	"tutti/steps"
)

const (
	outValues = iota
	outIndices
	outLabels
)

// inputName is the scores' name.
const inputName = "scores"

// NewFactory declares the step top_k.
//
// Input scores is FP32 [-1], one per class. Outputs are values FP32 [k], falling;
// indices INT32 [k], the class numbers; and, when labels_file is set, labels
// BYTES [k]. Equal scores keep the order of their classes. With softmax the values
// are probabilities over all classes, summed in float64 after the largest score is
// subtracted. NaN scores come last, stay NaN and count as probability 0 for the
// others; when a score is +Inf, such scores share the whole probability.
func NewFactory() steps.Factory {
	return steps.Factory{
		Name: "top_k",
		Doc:  "Picks the k best classes of a classifier's scores and gives their probabilities, indices and labels.",
		Params: []steps.Param{
			{Key: "k", Doc: "How many classes to give; a request with fewer classes is refused.", Default: "5"},
			{Key: "softmax", Doc: "Turns the scores into probabilities.", Default: "true", Values: []string{"true", "false"}},
			{Key: "labels_file", Doc: "Text file with one label per line, in the version folder or the model folder."},
		},
		Examples: []steps.Example{{
			Config: `parameters { key: "step" value { string_value: "top_k" } }
parameters { key: "k" value { string_value: "2" } }
parameters { key: "labels_file" value { string_value: "labels.txt" } }`,
			Files:   map[string][]byte{"labels.txt": []byte("cat\ndog\nfox\n")},
			Request: `{"inputs": [{"name": "scores", "datatype": "FP32", "shape": [3], "data": [0.5, 2, 1]}]}`,
		}},
		Inline:    true,
		Signature: signature,
		New:       newStep,
	}
}

func signature(s *steps.Settings) (*config.Signature, error) {
	k, err := parseK(s)
	if err != nil {
		return nil, err
	}
	sig := &config.Signature{
		Inputs: []config.Port{{Name: inputName, DType: tensor.FP32, Dims: tensor.Of(-1)}},
		Outputs: []config.Port{
			outValues:  {Name: "values", DType: tensor.FP32, Dims: tensor.Of(int64(k))},
			outIndices: {Name: "indices", DType: tensor.Int32, Dims: tensor.Of(int64(k))},
		},
	}
	if s.Params["labels_file"] != "" {
		sig.Outputs = append(sig.Outputs, config.Port{Name: "labels", DType: tensor.Bytes, Dims: tensor.Of(int64(k))})
	}
	return sig, nil
}

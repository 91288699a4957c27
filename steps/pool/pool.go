// Package pool holds the step "pool": it combines the vectors of a text's tokens into one vector for the text, as the Pooling layer of
// sentence-transformers does. For example, the mean of [1 2], [3 6] and a masked [9 9] is [2 4].
package pool

import (
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
)

// The modes.
const (
	modeMean     = "mean"
	modeSqrt     = "mean_sqrt_len"
	modeWeighted = "weighted_mean"
	modeCLS      = "cls"
	modeMax      = "max"
	modeLast     = "last"
)

const (
	portHidden = iota
	portMask
	portWeights
)

// NewFactory returns the step "pool".
//
// Inputs are last_hidden_state FP32 or FP16 [tokens, width] and attention_mask INT64 [tokens], of which a 0 hides a
// token; the output is embedding FP32 [width]. With weighted_mean there may be weights FP32 or FP16 [tokens], too. A
// text without tokens has 0 in every element, and so has one whose weights sum to 0. Sums are in FP32.
func NewFactory() steps.Factory {
	return steps.Factory{
		Name: "pool",
		Doc: "Combines the vectors of a text's tokens whose attention mask is not 0 into one vector per text: " +
			"their mean, their sum over the root of their number (mean_sqrt_len), their mean weighted by the input " +
			"weights or, without it, by the token's position from 1 on (weighted_mean), their maximum, or the " +
			"last of them; or the first token's vector, masked or not (cls). The result can be scaled to length 1. " +
			"Inputs that config.pbtxt declares FP16 are read as such; sums and the output are FP32.",
		Params: []steps.Param{
			{
				Key: "mode", Default: modeMean, Doc: "how the tokens' vectors are combined",
				Values: []string{modeMean, modeCLS, modeMax, modeLast, modeWeighted, modeSqrt},
			},
			{Key: "normalize", Default: "false", Values: []string{"true", "false"}, Doc: "whether the result is divided by its L2 norm"},
		},
		Examples: []steps.Example{{
			Config: `parameters { key: "step" value { string_value: "pool" } }`,
			Request: `{"inputs": [
    {"name": "last_hidden_state", "datatype": "FP32", "shape": [3, 2], "data": [1, 2, 3, 6, 9, 9]},
    {"name": "attention_mask", "datatype": "INT64", "shape": [3], "data": [1, 1, 0]}]}`,
		}, {
			Config: `parameters { key: "step" value { string_value: "pool" } }
parameters { key: "mode" value { string_value: "weighted_mean" } }
parameters { key: "normalize" value { string_value: "true" } }`,
			Request: `{"inputs": [
    {"name": "last_hidden_state", "datatype": "FP32", "shape": [3, 2], "data": [9, 0, 0, 8, 9, 9]},
    {"name": "attention_mask", "datatype": "INT64", "shape": [3], "data": [1, 1, 0]},
    {"name": "weights", "datatype": "FP32", "shape": [3], "data": [1, 1.5, 7]}]}`,
		}},
		Inline:    true,
		Signature: signature,
		New:       newStep,
	}
}

func signature(s *steps.Settings) (*config.Signature, error) {
	sig := &config.Signature{
		Inputs: []config.Port{
			portHidden: s.FloatPort("last_hidden_state", -1, -1),
			portMask:   {Name: "attention_mask", DType: tensor.Int64, Dims: tensor.Of(-1)},
		},
		Outputs: []config.Port{{Name: "embedding", DType: tensor.FP32, Dims: tensor.Of(-1)}},
	}
	if s.Params["mode"] == modeWeighted {
		weights := s.FloatPort("weights", -1)
		weights.Optional = true
		sig.Inputs = append(sig.Inputs, weights)
	}
	return sig, nil
}

func newStep(s *steps.Settings) (steps.Step, error) {
	normalize, err := s.Bool("normalize")
	if err != nil {
		return nil, err
	}
	combine := map[string]func(out []float32, r *row){
		modeMean: mean, modeSqrt: meanSqrt, modeWeighted: weightedMean, modeCLS: first, modeMax: highest, modeLast: last,
	}
	return &step{combine: combine[s.Params["mode"]], batched: s.MaxBatch > 0, normalize: normalize}, nil
}

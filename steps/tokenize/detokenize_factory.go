package tokenize

import (
	"strconv"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
)

// The parameters of the step "detokenize" beside those of "tokenize".
const (
	paramSkip  = "skip_special_tokens"
	paramPadID = "pad_id"
	paramDType = "dtype"
)

// The ports of the step, in the signature's order.
const (
	portDecodeIDs = iota
	portDecodeMask
)

// NewDetokenizeFactory returns the step "detokenize".
func NewDetokenizeFactory() steps.Factory {
	return steps.Factory{
		Name: "detokenize",
		Doc: "Turns token ids of a language model into text, by the decoder of the given Hugging Face " +
			"tokenizer.json or a file of another format. Ids whose attention mask is 0 and those of the padding are skipped. A row with an id that " +
			"is not in the vocabulary fails its request.",
		Params: append(formatParams(), []steps.Param{
			{Key: paramSkip, Default: "true", Values: []string{"true", "false"}, Doc: "whether special tokens are skipped"},
			{Key: paramPadID, Default: "none", Doc: "padding id, skipped at every position, for example -1; none for none"},
			{Key: paramDType, Default: "int64", Values: []string{"int64", "int32"}, Doc: "type of the ids"},
		}...),
		Inline:    true,
		Examples:  detokenizeExamples(),
		Signature: detokenizeSignature,
		New:       newDetokenizeStep,
	}
}

func detokenizeSignature(s *steps.Settings) (*config.Signature, error) {
	ids := tensor.Int64
	if s.Params[paramDType] == "int32" {
		ids = tensor.Int32
	}
	return &config.Signature{
		Inputs: []config.Port{
			portDecodeIDs:  {Name: "ids", DType: ids, Dims: tensor.Of(-1)},
			portDecodeMask: {Name: "attention_mask", DType: tensor.Int64, Dims: tensor.Of(-1), Optional: true},
		},
		Outputs: []config.Port{{Name: "TEXT", DType: tensor.Bytes, Dims: tensor.Of(1)}},
	}, nil
}

func newDetokenizeStep(s *steps.Settings) (steps.Step, error) {
	out := &detokenizeStep{batched: s.MaxBatch > 0, narrow: s.Params[paramDType] == "int32"}
	var err error
	if out.tok, err = load(s); err != nil {
		return nil, err
	}
	if out.skipSpecial, err = s.Bool(paramSkip); err != nil {
		return nil, err
	}
	if text := s.Params[paramPadID]; text != "none" {
		if out.padID, err = strconv.ParseInt(text, 10, 64); err != nil {
			return nil, status.Errorf(status.InvalidArg, "parameter '%s' of model '%s' is '%s', expected an integer or none", paramPadID, s.Model, text)
		}
		out.padded = true
	}
	return out, nil
}

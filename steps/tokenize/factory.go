package tokenize

import (
	"tutti/core/config"
	"tutti/core/tensor"
	"tutti/steps"
)

// The parameters of the step.
const (
	paramFile      = "tokenizer_file"
	paramMaxLength = "max_length"
	paramTruncate  = "truncate"
	paramMaxBytes  = "max_bytes"
)

// The ports of the step, in the signature's order.
const (
	portText = iota
	portPair
)

const (
	portIDs = iota
	portMask
	portTypes
)

// NewFactory returns the step "tokenize".
func NewFactory() steps.Factory {
	return steps.Factory{
		Name: "tokenize",
		Doc: "Turns text into the token ids, attention mask and type ids that a language model reads, as the given " +
			"Hugging Face tokenizer.json, or a file of another format, says. Rows of one batch are filled up to the longest with the padding id and a " +
			"mask of 0. Text that is not UTF-8 fails its request.",
		Params: append(formatParams(), []steps.Param{
			{Key: paramMaxLength, Default: "0", Doc: "most tokens of a row, special ones included; 0 takes the file's truncation"},
			{Key: paramTruncate, Default: "true", Values: []string{"true", "false"}, Doc: "whether a longer row is cut or fails its request"},
			{Key: paramMaxBytes, Default: "1048576", Doc: "most bytes of one text; a longer one fails its request"},
		}...),
		Inline:    true,
		Signature: signature,
		New:       newStep,
	}
}

func signature(*steps.Settings) (*config.Signature, error) {
	text, ids := tensor.Of(1), tensor.Of(-1)
	return &config.Signature{
		Inputs: []config.Port{
			portText: {Name: "TEXT", DType: tensor.Bytes, Dims: text},
			portPair: {Name: "TEXT_PAIR", DType: tensor.Bytes, Dims: text, Optional: true},
		},
		Outputs: []config.Port{
			portIDs:   {Name: "input_ids", DType: tensor.Int64, Dims: ids},
			portMask:  {Name: "attention_mask", DType: tensor.Int64, Dims: ids},
			portTypes: {Name: "token_type_ids", DType: tensor.Int64, Dims: ids},
		},
	}, nil
}

func newStep(s *steps.Settings) (steps.Step, error) {
	out := &step{batched: s.MaxBatch > 0}
	var err error
	if out.tok, err = load(s); err != nil {
		return nil, err
	}
	if out.maxBytes, err = s.Int(paramMaxBytes, 1); err != nil {
		return nil, err
	}
	out.maxBytes = min(out.maxBytes, MaxText)
	maxLength, err := s.Int(paramMaxLength, 0)
	if err != nil {
		return nil, err
	}
	if maxLength > 0 {
		if out.tok, err = out.tok.WithMaxLength(maxLength); err != nil {
			return nil, err
		}
	}
	truncate, err := s.Bool(paramTruncate)
	if err != nil {
		return nil, err
	}
	if !truncate {
		out.limit = out.tok.MaxLength()
		out.tok = out.tok.WithoutTruncation()
	}
	return out, nil
}

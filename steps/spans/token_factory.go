package spans

import (
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
)

// The parameters of token_spans.
const (
	paramLabels   = "labels_file"
	paramStrategy = "aggregation"
	paramScheme   = "scheme"
	paramIgnore   = "ignore"
	paramMinScore = "min_score"

	strategyNone    = "none"
	strategySimple  = "simple"
	strategyFirst   = "first"
	strategyAverage = "average"
	strategyMax     = "max"

	schemeBIO   = "bio"
	schemeBILOU = "bilou"
)

// The inputs of token_spans.
const (
	tokenLogits = iota
	tokenOffsets
	tokenSpecial
	tokenText
	tokenMask
	tokenWords
)

// NewTokenFactory returns the step "token_spans".
//
// Inputs are logits FP32 or FP16 [tokens, classes]; offset_mapping INT64 [tokens, 2], special_tokens_mask, attention_mask and
// word_ids INT64 [tokens] as tokenize returns them; and TEXT BYTES [1], the text. The output is spans BYTES
// [1], or count INT32 [1], text, start, end, score and label [n] of the n passages of the batch's longest row.
//
// The strategies are those of Hugging Face's token classification pipeline. A logit that is NaN or +Inf, and an offset
// outside the text, fail their request.
func NewTokenFactory() steps.Factory {
	return steps.Factory{
		Name: "token_spans",
		Doc: "Turns the scores of a token classifier (named entities, parts of speech) into passages of the text with label, " +
			"score (a probability), start and end, in the text's order. Tokens of the special mask and those whose attention " +
			"mask is 0 are skipped. Aggregation is that of Hugging Face's pipelines: none returns a passage per token with its " +
			"full label; simple joins neighbouring tokens with the same label after its B- or I-, a B- begins a new one; first, " +
			"average and max first assign one label to all tokens of a word: the first token's, the one of the highest mean " +
			"probability, or that of the token with the highest score. Words are those of word_ids or, without it, end at " +
			"spaces. A joined passage has the mean of its parts' scores. Text that is not UTF-8 fails its request.",
		Params: append([]steps.Param{
			{Key: paramLabels, Required: true, Sample: "labels.txt", Doc: "text file with one label per line, in the version folder or the model folder"},
			{
				Key: paramStrategy, Default: strategySimple, Doc: "how tokens become passages",
				Values: []string{strategyNone, strategySimple, strategyFirst, strategyAverage, strategyMax},
			},
			{
				Key: paramScheme, Default: schemeBIO, Values: []string{schemeBIO, schemeBILOU},
				Doc: "prefixes of labels: B and I, or also L or E for the last token and U or S for a single one",
			},
			{Key: paramIgnore, Default: "O", Doc: "labels without passages, separated by commas"},
			{Key: paramMinScore, Default: "0", Doc: "smallest score of a passage in the output"},
		}, commonParams()...),
		Examples:  []steps.Example{tokenExample()},
		Inline:    true,
		Signature: tokenSignature,
		New:       newTokenStep,
	}
}

func tokenExample() steps.Example {
	return steps.Example{
		Config: `parameters { key: "step" value { string_value: "token_spans" } }
parameters { key: "labels_file" value { string_value: "labels.txt" } }
parameters { key: "aggregation" value { string_value: "first" } }`,
		Files: map[string][]byte{"labels.txt": []byte("O\nB-PER\nI-PER\nB-LOC\nI-LOC\n")},
		Request: `{"inputs": [
    {"name": "logits", "datatype": "FP32", "shape": [6, 5], "data": [
        9, 0, 0, 0, 0,  0, 7, 0, 0, 0,  0, 0, 1, 4, 0,  6, 0, 0, 0, 0,  0, 0, 0, 5, 0,  9, 0, 0, 0, 0]},
    {"name": "offset_mapping", "datatype": "INT64", "shape": [6, 2], "data": [0, 0, 0, 2, 2, 4, 5, 7, 8, 14, 0, 0]},
    {"name": "special_tokens_mask", "datatype": "INT64", "shape": [6], "data": [1, 0, 0, 0, 0, 1]},
    {"name": "word_ids", "datatype": "INT64", "shape": [6], "data": [-1, 0, 0, 1, 2, -1]},
    {"name": "TEXT", "datatype": "BYTES", "shape": [1], "data": ["Anna in Zürich"]}]}`,
	}
}

func tokenSignature(s *steps.Settings) (*config.Signature, error) {
	return &config.Signature{
		Inputs: []config.Port{
			tokenLogits:  s.FloatPort("logits", -1, -1),
			tokenOffsets: ints("offset_mapping", false, -1, 2),
			tokenSpecial: ints("special_tokens_mask", false, -1),
			tokenText:    {Name: "TEXT", DType: tensor.Bytes, Dims: tensor.Of(1)},
			tokenMask:    ints("attention_mask", true, -1),
			tokenWords:   ints("word_ids", true, -1),
		},
		Outputs: outPorts(s, "spans", true, -1),
	}, nil
}

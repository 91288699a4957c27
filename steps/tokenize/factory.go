package tokenize

import (
	"runtime"

	"golang.org/x/sync/semaphore"

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
	paramOffsets   = "offsets"
)

// The ports of the step, in the signature's order.
const (
	portText = iota
	portPair
)

// inputName is the name of an input.
func inputName(port int) string {
	if port == portPair {
		return "TEXT_PAIR"
	}
	return "TEXT"
}

// baseOutputs are the names of the outputs that are always there, in the columns' order.
var baseOutputs = []string{columnIDs: "input_ids", columnMask: "attention_mask", columnTypes: "token_type_ids"}

// moreOutputs are the names of those that a configuration has to declare.
var moreOutputs = map[string]int{
	"special_tokens_mask": columnSpecial, "offset_mapping": columnOffsets, "word_ids": columnWords, "sequence_ids": columnSequences,
}

// NewFactory returns the step "tokenize".
func NewFactory() steps.Factory {
	return steps.Factory{
		Name: "tokenize",
		Doc: "Turns text into the token ids, attention mask and type ids that a language model reads, as the given " +
			"Hugging Face tokenizer.json, or a file of another format, says. Rows of one batch are filled up to the longest with the padding id and a " +
			"mask of 0, on the side that the file's padding says. Declare more outputs to have them: " +
			"offset_mapping, the part of the text that each token is of; special_tokens_mask, 1 for tokens that the file or the filling up adds; " +
			"word_ids, the word that a token is of, and sequence_ids, 0 for TEXT and 1 for TEXT_PAIR, both -1 for such tokens. Text that is not UTF-8 fails its request.",
		Params: append(formatParams(), []steps.Param{
			{Key: paramMaxLength, Default: "0", Doc: "most tokens of a row, special ones included; 0 takes the file's truncation"},
			{Key: paramTruncate, Default: "true", Values: []string{"true", "false"}, Doc: "whether a longer row is cut or fails its request"},
			{Key: paramMaxBytes, Default: "1048576", Doc: "most bytes of one text; a longer one fails its request"},
			{
				Key: paramOffsets, Default: "characters", Values: []string{"characters", "bytes"},
				Doc: "what offset_mapping counts: Unicode code points, or bytes of UTF-8",
			},
		}...),
		Inline:    true,
		Examples:  tokenizeExamples(),
		Signature: signature,
		New:       newStep,
	}
}

func signature(s *steps.Settings) (*config.Signature, error) {
	text := tensor.Of(1)
	out := &config.Signature{
		Inputs: []config.Port{
			portText: {Name: "TEXT", DType: tensor.Bytes, Dims: text},
			portPair: {Name: "TEXT_PAIR", DType: tensor.Bytes, Dims: text, Optional: true},
		},
	}
	for _, name := range baseOutputs {
		out.Outputs = append(out.Outputs, config.Port{Name: name, DType: tensor.Int64, Dims: tensor.Of(-1)})
	}
	for _, p := range s.Outputs {
		column, ok := moreOutputs[p.Name]
		switch {
		case !ok:
		case columnWidth(column) > 1:
			out.Outputs = append(out.Outputs, config.Port{Name: p.Name, DType: tensor.Int64, Dims: tensor.Of(-1, int64(columnWidth(column)))})
		default:
			out.Outputs = append(out.Outputs, config.Port{Name: p.Name, DType: tensor.Int64, Dims: tensor.Of(-1)})
		}
	}
	return out, nil
}

func newStep(s *steps.Settings) (steps.Step, error) {
	most := runtime.GOMAXPROCS(0)
	out := &step{
		batched: s.MaxBatch > 0, columns: []int{columnIDs, columnMask, columnTypes}, inBytes: s.Params[paramOffsets] == "bytes",
		most: most, helpers: semaphore.NewWeighted(int64(most)),
	}
	for _, p := range s.Outputs {
		if column, ok := moreOutputs[p.Name]; ok {
			out.columns = append(out.columns, column)
			out.tracked = out.tracked || column != columnSpecial
		}
	}
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

// Package tokenize holds the steps "tokenize" (text to token ids) and "detokenize" (token ids to text). The work is done by
// the engine in internal/tokenizer; the steps read its file and options, spread the rows of a batch over processors and
// write the outputs.
//
// For example, with a BERT vocabulary the text "Hello worlds!" becomes input_ids [101, 7592, 8484, 999, 102],
// attention_mask [1, 1, 1, 1, 1] and token_type_ids [0, 0, 0, 0, 0]. A shorter text of the same batch gets padding ids with a
// mask of 0.
package tokenize

import (
	"fmt"
	"math"
	"runtime"
	"slices"

	"golang.org/x/sync/semaphore"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/tokenizer"
	"github.com/tutti-server/tutti/steps"
)

const (
	portText = iota
	portPair
)

var inputNames = [...]string{portText: "TEXT", portPair: "TEXT_PAIR"}

var outputNames = []string{
	columnIDs: "input_ids", columnMask: "attention_mask", columnTypes: "token_type_ids",
	columnSpecial: "special_tokens_mask", columnOffsets: "offset_mapping", columnWords: "word_ids", columnSequences: "sequence_ids",
	columnSamples: "overflow_to_sample_mapping", columnCount: "token_count",
}

// outputColumns returns the columns of the outputs: three that always exist, samples with windows, and others that config.pbtxt declares.
func outputColumns(s *steps.Settings) []int {
	out := []int{columnIDs, columnMask, columnTypes}
	if hasWindows(s) {
		out = append(out, columnSamples)
	}
	for _, p := range s.Outputs {
		if column := slices.Index(outputNames, p.Name); column > columnTypes && column != columnSamples {
			out = append(out, column)
		}
	}
	return out
}

// NewFactory returns the step "tokenize".
func NewFactory() steps.Factory {
	return steps.Factory{
		Name: "tokenize",
		Doc: "Turns text into the token ids, attention mask and type ids that a language model reads, by the given " +
			"Hugging Face tokenizer.json or a file of another format. Rows of one batch are padded to the longest with the padding id and a " +
			"mask of 0, on the side of the file's padding. Declare further outputs to get them: " +
			"offset_mapping, the range of the text that each token covers; special_tokens_mask, 1 for special tokens and padding; " +
			"word_ids, the number of the token's word, and sequence_ids, 0 for TEXT and 1 for TEXT_PAIR, both -1 for special tokens and padding; " +
			"token_count, the number of tokens before truncation, special ones included. Text that is not UTF-8 fails its request. " +
			"With return_overflowing_tokens a text that is longer than max_length becomes several rows, its windows: the response to n texts has " +
			"a row for each window, padded to the longest of the request, and overflow_to_sample_mapping has the number of the text of each row. " +
			"In an ensemble the next step's request has those rows, which its max_batch_size bounds. With max_batch_size 0 the windows are the first dimension.",
		Params: append(formatParams(), []steps.Param{
			{Key: "max_length", Default: "0", Doc: "largest number of tokens in a row, special ones included; 0 uses the file's truncation"},
			{Key: "truncate", Default: "true", Values: []string{"true", "false", "longest_first", "only_first", "only_second"}, Doc: "whether a longer row is truncated (by the file's strategy or the one named) or fails its request"},
			{Key: "return_overflowing_tokens", Default: "false", Values: []string{"true", "false"}, Doc: "whether the tokens that truncation removes follow in further rows, the windows of a text, as with this option of transformers"},
			{Key: "stride", Default: "file", Doc: "number of tokens that a window repeats from the one before; file uses the file's truncation"},
			{Key: "max_windows", Default: "1024", Doc: "largest number of windows of one text; a text with more fails its request"},
			{Key: "max_bytes", Default: "1048576", Doc: "largest size of one text in bytes; a longer one fails its request"},
			{Key: "offsets", Default: "characters", Values: []string{"characters", "bytes"}, Doc: "the unit of offset_mapping: Unicode code points, or bytes of UTF-8"},
		}...),
		Inline:    true,
		Examples:  tokenizeExamples(),
		Signature: signature,
		New:       newStep,
	}
}

func signature(s *steps.Settings) (*config.Signature, error) {
	out := &config.Signature{Inputs: []config.Port{
		portText: {Name: inputNames[portText], DType: tensor.Bytes, Dims: tensor.Of(1)},
		portPair: {Name: inputNames[portPair], DType: tensor.Bytes, Dims: tensor.Of(1), Optional: true},
	}}
	for _, column := range outputColumns(s) {
		// With windows the number of rows differs from that of the inputs; without a batch dimension they are the first one.
		p := config.Port{Name: outputNames[column], DType: tensor.Int64, Dims: columnDims(column, -1)}
		p.Unchecked = hasWindows(s) && s.MaxBatch > 0
		if hasWindows(s) && s.MaxBatch == 0 {
			p.Dims = p.Dims.Prepend(-1)
		}
		out.Outputs = append(out.Outputs, p)
	}
	return out, nil
}

// hasWindows reports whether a text can become several rows.
func hasWindows(s *steps.Settings) bool { return s.Params["return_overflowing_tokens"] == "true" }

func newStep(s *steps.Settings) (steps.Step, error) {
	most := runtime.GOMAXPROCS(0)
	out := &step{
		batched: s.MaxBatch > 0, columns: outputColumns(s), inBytes: s.Params["offsets"] == "bytes",
		most: most, helpers: semaphore.NewWeighted(int64(most)),
	}
	for _, column := range out.columns {
		if column > columnTypes && column < columns {
			out.more, out.tracked = true, out.tracked || column != columnSpecial
		}
	}
	var err error
	if out.tok, err = load(s); err != nil {
		return nil, err
	}
	p := steps.Reader{Settings: s}
	out.maxBytes = min(p.Int("max_bytes", 1, math.MaxInt), tokenizer.MaxText)
	if n := p.Int("max_length", 0, math.MaxInt); p.Err == nil && n > 0 {
		out.tok, p.Err = out.tok.WithMaxLength(n)
	}
	if p.Err != nil {
		return nil, p.Err
	}
	return out, out.setTruncation(s)
}

// setTruncation reads the parameters for rows that are too long.
func (s *step) setTruncation(settings *steps.Settings) (err error) {
	switch how := settings.Params["truncate"]; how {
	case "true":
	case "false":
		s.limit = s.tok.MaxLength()
		s.tok = s.tok.WithoutTruncation()
	default:
		if s.tok, err = s.tok.WithStrategy(how); err != nil {
			return fmt.Errorf("parameter '%s' of model '%s': %w", "truncate", settings.Model, err)
		}
	}
	if settings.Params["stride"] != "file" {
		stride, err := settings.Int("stride", 0)
		if err != nil {
			return err
		}
		if s.tok, err = s.tok.WithStride(stride); err != nil {
			return fmt.Errorf("parameter '%s' of model '%s': %w", "stride", settings.Model, err)
		}
	}
	if !hasWindows(settings) {
		return nil
	}
	if s.tok.MaxLength() == 0 {
		return fmt.Errorf("parameter '%s' of model '%s' is 'true', expected 'false' without truncation to a max_length", "return_overflowing_tokens", settings.Model)
	}
	s.windows, err = settings.Int("max_windows", 1)
	return err
}

// exampleVocabulary is the vocab.txt of the examples.
const exampleVocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\nhello\nworld\n##s\n!\nhow\nare\nyou\n"

// tokenizeExamples returns the examples of the step "tokenize".
func tokenizeExamples() []steps.Example {
	files := map[string][]byte{"vocab.txt": []byte(exampleVocabulary)}
	return []steps.Example{
		{
			Config:  steps.ExampleConfig("max_batch_size: 8", "tokenize", "tokenizer_file", "vocab.txt"),
			Files:   files,
			Request: `{"inputs": [{"name": "TEXT", "datatype": "BYTES", "shape": [2, 1], "data": ["Hello worlds!", "How are you"]}]}`,
		},
		{
			Config: steps.ExampleConfig(`output { name: "input_ids" data_type: TYPE_INT64 dims: [ -1 ] }
output { name: "offset_mapping" data_type: TYPE_INT64 dims: [ -1, 2 ] }
output { name: "word_ids" data_type: TYPE_INT64 dims: [ -1 ] }
output { name: "sequence_ids" data_type: TYPE_INT64 dims: [ -1 ] }
output { name: "special_tokens_mask" data_type: TYPE_INT64 dims: [ -1 ] }`, "tokenize", "tokenizer_file", "vocab.txt"),
			Files: files,
			Request: `{"inputs": [{"name": "TEXT", "datatype": "BYTES", "shape": [1], "data": ["how"]}, ` +
				`{"name": "TEXT_PAIR", "datatype": "BYTES", "shape": [1], "data": ["Héllo worlds"]}]}`,
		},
		{
			Config: steps.ExampleConfig("max_batch_size: 8", "tokenize", "tokenizer_file", "vocab.txt", "max_length", "6", "truncate", "only_second", "stride", "1", "return_overflowing_tokens", "true"),
			Files:  files,
			Request: `{"inputs": [{"name": "TEXT", "datatype": "BYTES", "shape": [1, 1], "data": ["how"]}, ` +
				`{"name": "TEXT_PAIR", "datatype": "BYTES", "shape": [1, 1], "data": ["Hello world how are you"]}]}`,
		},
	}
}

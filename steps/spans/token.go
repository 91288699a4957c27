package spans

import (
	"context"
	"slices"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/pool"
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
		Config: steps.ExampleConfig("", "token_spans", "labels_file", "labels.txt", "aggregation", "first"),
		Files:  map[string][]byte{"labels.txt": []byte("O\nB-PER\nI-PER\nB-LOC\nI-LOC\n")},
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

// tokenStep is the step "token_spans".
type tokenStep struct {
	in       in
	out      out
	names    []string // of the inputs
	labels   []label
	strategy string
	minScore float32
	scratch  pool.Of[tokenRun]
}

// tokenRun is the memory of one execution.
type tokenRun struct {
	found  found
	tokens tokens
	logits []float32
	spare  []float32
	sums   []float64 // of a word's probabilities, per class
	group  group
}

func newTokenStep(s *steps.Settings) (steps.Step, error) {
	labels, err := readLabels(s)
	if err != nil {
		return nil, err
	}
	lowest, err := s.Float(paramMinScore)
	if err != nil {
		return nil, err
	}
	sig, err := tokenSignature(s)
	if err != nil {
		return nil, err
	}
	step := &tokenStep{in: newIn(s), labels: labels, strategy: s.Params[paramStrategy], minScore: float32(lowest)}
	step.in.offsets, step.in.special, step.in.text = tokenOffsets, tokenSpecial, tokenText
	step.in.mask, step.in.words = tokenMask, tokenWords
	step.out = out{json: s.Params[paramOutput] == asJSON, batched: s.MaxBatch > 0, labels: labels}
	for i := range sig.Inputs {
		step.names = append(step.names, sig.Inputs[i].Name)
	}
	return step, nil
}

// Run finds the passages of each row.
//
// hot: no allocation once the pooled memory has grown.
func (s *tokenStep) Run(ctx context.Context, b *backends.Batch) error {
	n, err := s.in.extent(b, s.names)
	if err != nil {
		return err
	}
	shape := &b.In[tokenLogits].Shape
	if got := shape.Dim(shape.Rank() - 1); got != int64(len(s.labels)) {
		return status.Errorf(status.InvalidArg, "input 'logits': expected %d classes, one per line of labels_file, found %d", len(s.labels), got)
	}
	r := s.scratch.Get()
	r.sums = slices.Grow(r.sums[:0], len(s.labels))[:len(s.labels)]
	defer s.recycle(r)
	r.found.reset()
	texts := b.In[tokenText].Bytes()
	for row := range b.Rows {
		if err := ctx.Err(); err != nil {
			return err
		}
		text, rest, ok := tensor.NextBytes(texts)
		if !ok {
			return status.Errorf(status.InvalidArg, "input 'TEXT' ends before row %d of %d", row, b.Rows)
		}
		texts = rest
		start := len(r.found.list)
		err := s.row(r, b, row, n, text)
		if err != nil {
			b.Fail(row, err)
		}
		r.found.endRow(start, err != nil)
	}
	return s.out.write(b, &r.found)
}

// keep is the largest number of passages or logits whose memory goes back to the pool.
const keep = 1 << 18

func (s *tokenStep) recycle(r *tokenRun) {
	if cap(r.found.list) > keep || cap(r.spare) > keep || cap(r.tokens.starts) > keep || cap(r.found.bytes) > 16*keep {
		return
	}
	r.found.forget()
	r.tokens, r.logits = tokens{places: places{starts: r.tokens.starts}}, nil
	s.scratch.Put(r)
}

func (s *tokenStep) row(r *tokenRun, b *backends.Batch, row, n int, text []byte) error {
	if err := s.in.row(&r.tokens, b, row, n, text); err != nil {
		return err
	}
	size := n * len(s.labels)
	r.logits, r.spare = steps.Floats(r.spare, &b.In[tokenLogits], row*size, size)
	r.group = group{}
	for i := 0; i < n; {
		if !r.tokens.seen(i) {
			i++
			continue
		}
		word, next, err := s.word(r, i, n)
		if err != nil {
			return err
		}
		s.join(r, &word)
		i = next
	}
	s.flush(r)
	return nil
}

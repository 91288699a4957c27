package spans

import (
	"math"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/jsontext"
	"github.com/tutti-server/tutti/steps"
)

const (
	strategyNone    = "none"
	strategySimple  = "simple"
	strategyAverage = "average"
	strategyMax     = "max"
	schemeBILOU     = "bilou"
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
			{Key: "labels_file", Required: true, Sample: "labels.txt", Doc: "text file with one label per line, in the version folder or the model folder"},
			{Key: "aggregation", Default: strategySimple, Doc: "how tokens become passages", Values: []string{strategyNone, strategySimple, "first", strategyAverage, strategyMax}},
			{Key: "scheme", Default: "bio", Values: []string{"bio", schemeBILOU}, Doc: "prefixes of labels: B and I, or also L or E for the last token and U or S for a single one"},
			{Key: "ignore", Default: "O", Doc: "labels without passages, separated by commas"},
			{Key: "min_score", Default: "0", Doc: "smallest score of a passage in the output"},
		}, commonParams()...),
		Examples: []steps.Example{{
			Config: steps.ExampleConfig("", "token_spans", "labels_file", "labels.txt", "aggregation", "first"),
			Files:  map[string][]byte{"labels.txt": []byte("O\nB-PER\nI-PER\nB-LOC\nI-LOC\n")},
			Request: `{"inputs": [
    {"name": "logits", "datatype": "FP32", "shape": [6, 5], "data": [
        9, 0, 0, 0, 0,  0, 7, 0, 0, 0,  0, 0, 1, 4, 0,  6, 0, 0, 0, 0,  0, 0, 0, 5, 0,  9, 0, 0, 0, 0]},
    {"name": "offset_mapping", "datatype": "INT64", "shape": [6, 2], "data": [0, 0, 0, 2, 2, 4, 5, 7, 8, 14, 0, 0]},
    {"name": "special_tokens_mask", "datatype": "INT64", "shape": [6], "data": [1, 0, 0, 0, 0, 1]},
    {"name": "word_ids", "datatype": "INT64", "shape": [6], "data": [-1, 0, 0, 1, 2, -1]},
    {"name": "TEXT", "datatype": "BYTES", "shape": [1], "data": ["Anna in Zürich"]}]}`,
		}},
		Inline:    true,
		Signature: tokenSignature,
		New:       newTokenStep,
	}
}

func tokenSignature(s *steps.Settings) (*config.Signature, error) {
	return &config.Signature{Inputs: tokenInputs(s), Outputs: outPorts(s, "spans", true, -1)}, nil
}

func tokenInputs(s *steps.Settings) []config.Port { return inputs(s.FloatPort("logits", -1, -1)) }

type tokenStep struct {
	labels   []label
	strategy string
	minScore float32
}

// tokenRun is the memory of a row of tokenStep.
type tokenRun struct {
	logits []float32
	sums   []float64 // of a word's probabilities, per class
	group  group
}

func newTokenStep(s *steps.Settings) (steps.Step, error) {
	labels, err := readLabels(s)
	if err != nil {
		return nil, err
	}
	p := steps.Reader{Settings: s}
	f := &tokenStep{labels, s.Params["aggregation"], p.Float("min_score")}
	return newStep(s, f, tokenInputs(s), 1, out{labels: labels}), p.Err
}

func (s *tokenStep) find(r *run, b *backends.Batch, row, n int) error {
	size := n * len(s.labels)
	r.logits, r.spare[0] = steps.Floats(r.spare[0], &b.In[0], row*size, size)
	r.sums = slices.Grow(r.sums[:0], len(s.labels))[:len(s.labels)]
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

// label is a class of tokens.
type label struct {
	name, quoted []byte // as passages have it, and the same as a JSON string
	tag          string // of passages that may be one
	begins, ends bool   // whether a passage begins or ends with such a token
	ignored      bool
}

// readLabels reads the labels file: one label per line, the class's number is the line's.
func readLabels(s *steps.Settings) ([]label, error) {
	lines, err := s.Labels("labels_file")
	if err == nil && lines == nil {
		_, err = s.Find("") // the parameter is required
	}
	if err != nil {
		return nil, err
	}
	ignore := strings.Split(s.Params["ignore"], ",")
	out := make([]label, len(lines))
	for i, line := range lines {
		out[i] = newLabel(string(line[tensor.EncodedLen(0):]), s.Params["scheme"], s.Params["aggregation"] == strategyNone)
		out[i].ignored = s.Params["ignore"] != "" && slices.Contains(ignore, string(out[i].name))
	}
	return out, nil
}

// newLabel reads a label such as B-PER. With whole, the name includes the prefix, which says which part of a passage a token is: BIO has
// its first and the others, BILOU (or BIOES) its last and passages of one token, too.
func newLabel(text, scheme string, whole bool) label {
	name, l := text, label{tag: text}
	if prefix, tag, ok := strings.Cut(text, "-"); ok {
		if !whole {
			name = tag
		}
		parts := "BI"
		if scheme == schemeBILOU {
			parts = "BILEUS"
		}
		if len(prefix) == 1 && strings.Contains(parts, prefix) {
			l.tag, l.begins, l.ends = tag, strings.ContainsAny(prefix, "BUS"), strings.ContainsAny(prefix, "LEUS")
		}
	}
	l.name, l.quoted = []byte(name), jsontext.Append(nil, []byte(name))
	return l
}

// word is a token, or the tokens of a word, with one label by the strategy.
type word struct {
	start, end int // bytes of the text
	label      int32
	score      float32
}

// group is the passage that is being built.
type group struct {
	words       int
	start, end  int
	first, last int32 // labels
	sum         float64
}

// best returns the most probable class of token i (the first of equal ones) and the sum of exp(logit - highest) over all classes, so
// that its probability is 1/sum.
func (s *tokenStep) best(r *run, i int) (top int32, sum float64, err error) {
	logits := r.logits[i*len(s.labels) : (i+1)*len(s.labels)]
	highest := float32(math.Inf(-1))
	for class, v := range logits {
		if v != v {
			highest = v
			break
		}
		if v > highest {
			top, highest = int32(class), v
		}
	}
	if !(math.Abs(float64(highest)) <= math.MaxFloat32) {
		return 0, 0, status.Errorf(status.InvalidArg, "input 'logits': expected finite numbers, the highest of token %d is %v", i, highest)
	}
	for _, v := range logits {
		sum += math.Exp(float64(v) - float64(highest))
	}
	return top, sum, nil
}

// word reads the token at i or, for a strategy on words, the tokens of the word that begins there, up to token n. next is the token
// after it.
func (s *tokenStep) word(r *run, i, n int) (w word, next int, err error) {
	top, sum, err := s.best(r, i)
	if err != nil {
		return w, 0, err
	}
	if w.start, w.end, err = r.tokens.span(i); err != nil {
		return w, 0, err
	}
	w.label, w.score = top, float32(1/sum)
	if s.strategy == strategyNone || s.strategy == strategySimple {
		return w, i + 1, nil
	}
	if s.strategy == strategyAverage {
		clear(r.sums)
		s.add(r, i, top, sum)
	}
	count, last := 1, i
	for next = i + 1; next < n; next++ {
		if !r.tokens.seen(next) {
			continue
		}
		start, end, err := r.tokens.span(next)
		if err != nil {
			return w, 0, err
		}
		if !r.tokens.continues(last, next, start) {
			break
		}
		if top, sum, err = s.best(r, next); err != nil {
			return w, 0, err
		}
		w.end, last = end, next
		count++
		switch s.strategy {
		case strategyMax:
			if score := float32(1 / sum); score > w.score {
				w.label, w.score = top, score
			}
		case strategyAverage:
			s.add(r, next, top, sum)
		}
	}
	if s.strategy == strategyAverage {
		w.label, w.score = likeliest(r.sums, count)
	}
	w.end = max(w.start, w.end)
	return w, next, nil
}

// add adds token i's probabilities to the word's.
func (s *tokenStep) add(r *run, i int, top int32, sum float64) {
	logits := r.logits[i*len(s.labels) : (i+1)*len(s.labels)]
	highest := float64(logits[top])
	for class, v := range logits {
		r.sums[class] += math.Exp(float64(v)-highest) / sum
	}
}

// likeliest returns the class with the highest sum, and its mean over count tokens.
func likeliest(sums []float64, count int) (class int32, mean float32) {
	for i, v := range sums {
		if v > sums[class] {
			class = int32(i)
		}
	}
	return class, float32(sums[class] / float64(count))
}

// continues reports whether token i, whose text begins at start, belongs to the same word as token last.
func (t *tokens) continues(last, i, start int) bool {
	if t.words != nil {
		return t.words[i] >= 0 && t.words[i] == t.words[last]
	}
	return start > 0 && t.text[start-1] != ' ' && (start == len(t.text) || t.text[start] != ' ')
}

// join adds w to the current passage, or starts another one.
func (s *tokenStep) join(r *run, w *word) {
	g, l := &r.group, &s.labels[w.label]
	before := &s.labels[g.last] // any label where there is no passage
	if s.strategy == strategyNone || g.words == 0 || l.begins || before.ends || before.tag != l.tag {
		s.flush(r)
		*g = group{start: w.start, first: w.label}
	}
	g.words++
	g.end, g.last = w.end, w.label
	g.sum += float64(w.score)
}

// flush ends the current passage.
func (s *tokenStep) flush(r *run) {
	g := &r.group
	if g.words == 0 {
		return
	}
	score := float32(g.sum / float64(g.words))
	if !s.labels[g.first].ignored && score >= s.minScore {
		p := r.tokens.passage(g.start, max(g.start, g.end), score)
		p.label = g.first
		r.list = append(r.list, p)
	}
	g.words = 0
}

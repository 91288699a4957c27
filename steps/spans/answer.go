package spans

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"strconv"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/steps"
)

// maxTopK is the largest number of answers of a row.
const maxTopK = 1000

// NewAnswerFactory returns the step "answer_spans".
//
// Inputs are start_logits and end_logits FP32 or FP16 [tokens]; offset_mapping INT64 [tokens, 2], special_tokens_mask,
// attention_mask, word_ids and sequence_ids INT64 [tokens] as tokenize returns them for the pair of question and
// context; and TEXT BYTES [1], the context. The output is answers BYTES [1], or count INT32 [1], text, start, end and
// score [top_k], padded with empty ones.
//
// The rules are those of Hugging Face's question answering pipeline for one window. A logit of the context that is NaN
// or +Inf, and an offset outside the text, fail their request.
func NewAnswerFactory() steps.Factory {
	return steps.Factory{
		Name: "answer_spans",
		Doc: "Turns the start and end scores of an extractive question answering model into the most probable answers: passages of " +
			"the context with score, start and end, best first. Only tokens of the context count: those of sequence 1 that are not " +
			"special or, without sequence_ids, those after the special token that follows the question. A score is " +
			"the probability of the start times that of the end. With word_ids, answers are extended to whole words. " +
			"Answers that differ in case only are one, with the sum of their scores. Text that is not UTF-8 fails its request.",
		Params: append([]steps.Param{
			{Key: "top_k", Default: "1", Doc: "number of answers to return, at most " + strconv.Itoa(maxTopK)},
			{Key: "max_answer_tokens", Default: "15", Doc: "largest number of tokens in an answer"},
			{Key: "no_answer", Default: "false", Values: []string{"true", "false"}, Doc: "whether the empty answer is a candidate, scored by the first token, for models trained with unanswerable questions"},
		}, commonParams()...),
		Examples: []steps.Example{{
			Config: steps.ExampleConfig("", "answer_spans", "top_k", "2"),
			Request: `{"inputs": [
    {"name": "start_logits", "datatype": "FP32", "shape": [8], "data": [0, 9, 0, 4, 1, 0, 3, 0]},
    {"name": "end_logits", "datatype": "FP32", "shape": [8], "data": [0, 0, 0, 0, 5, 0, 2, 9]},
    {"name": "offset_mapping", "datatype": "INT64", "shape": [8, 2], "data": [0, 0, 0, 3, 0, 0, 0, 3, 4, 8, 9, 14, 15, 19, 0, 0]},
    {"name": "special_tokens_mask", "datatype": "INT64", "shape": [8], "data": [1, 0, 1, 0, 0, 0, 0, 1]},
    {"name": "TEXT", "datatype": "BYTES", "shape": [1], "data": ["Ada Byron wrote code"]}]}`,
		}},
		Inline:    true,
		Signature: answerSignature,
		New:       newAnswerStep,
	}
}

func answerSignature(s *steps.Settings) (*config.Signature, error) {
	k, err := s.Int("top_k", 1)
	in := append(inputs(s.FloatPort("start_logits", -1), s.FloatPort("end_logits", -1)), ints("sequence_ids", true, -1))
	return &config.Signature{Inputs: in, Outputs: outPorts(s, "answers", false, int64(k))}, err
}

type answerStep struct {
	topK, maxTokens int
	empty           bool
}

// answerRun is the memory of a row of answerStep.
type answerRun struct {
	p       [2][]float64 // of each token to be the start, and the end
	context []bool       // the tokens that an answer may contain
	best    []candidate  // best first
}

func newAnswerStep(s *steps.Settings) (steps.Step, error) {
	sig, err := answerSignature(s)
	if err != nil {
		return nil, err
	}
	p := steps.Reader{Settings: s}
	f := &answerStep{p.Int("top_k", 1, maxTopK), p.Int("max_answer_tokens", 1, math.MaxInt), s.Params["no_answer"] == "true"}
	return newStep(s, f, sig.Inputs, 2, out{width: f.topK}), p.Err
}

func (s *answerStep) find(r *run, b *backends.Batch, row, n int) error {
	r.markContext(n)
	for i, name := range [...]string{"start_logits", "end_logits"} {
		logits, spare := steps.Floats(r.spare[i], &b.In[i], row*n, n)
		r.spare[i] = spare
		var err error
		if r.p[i], err = r.softmax(r.p[i], logits, name); err != nil {
			return err
		}
	}
	first := len(r.list)
	s.search(r, n)
	if err := r.collect(first); err != nil {
		return err
	}
	if s.empty && n > 0 {
		r.list = append(r.list, passage{score: float32(r.p[0][0] * r.p[1][0])})
	}
	found := r.list[first:]
	slices.SortStableFunc(found, func(a, b passage) int { return cmp.Compare(b.score, a.score) })
	r.list = r.list[:first+min(len(found), s.topK)]
	return nil
}

// candidate is an answer from one token to another.
type candidate struct {
	score      float64
	start, end int
}

// compare orders candidates by descending score; of equal ones the first and shorter is better.
func (c candidate) compare(d candidate) int {
	switch {
	case c.score > d.score:
		return -1
	case c.score < d.score:
		return 1
	default:
		return cmp.Or(c.start-d.start, c.end-d.end)
	}
}

// masked is the logit of tokens outside the context, as in Hugging Face's pipeline.
const masked = -10000

// markContext marks the tokens that an answer may contain: those of sequence 1 or, without sequences, those after the first special
// token behind the question.
func (r *run) markContext(n int) {
	t := &r.tokens
	r.context = slices.Grow(r.context[:0], n)[:n]
	question, behind := false, false
	for i := range n {
		seen := t.seen(i)
		if t.sequences != nil {
			r.context[i] = seen && t.sequences[i] == 1
			continue
		}
		question = question || seen
		behind = behind || question && t.special[i] != 0
		r.context[i] = seen && behind
	}
}

// softmax turns logits into probabilities over the context, and over token 0 where that is special: models point there when there is
// no answer.
func (r *run) softmax(out []float64, logits []float32, name string) ([]float64, error) {
	n := len(logits)
	out = slices.Grow(out[:0], n)[:n]
	highest := math.Inf(-1)
	for i, v := range logits {
		out[i] = masked
		if r.context[i] || i == 0 && r.tokens.special[0] != 0 {
			out[i] = float64(v)
			if !(v <= math.MaxFloat32) {
				return out, status.Errorf(status.InvalidArg, "input '%s': expected finite numbers, token %d is %v", name, i, v)
			}
		}
		highest = max(highest, out[i])
	}
	sum := 0.0
	for i, v := range out {
		out[i] = 1
		if v != highest { // infinities of the same sign weigh the same
			out[i] = math.Exp(v - highest)
		}
		sum += out[i]
	}
	for i := range out {
		out[i] /= sum
	}
	return out, nil
}

// search leaves the best candidates in r.best. There are more than top_k, since several may merge into one answer.
func (s *answerStep) search(r *run, n int) {
	limit := s.topK
	if r.tokens.words != nil {
		limit = 2*s.topK + 10
	}
	r.best = r.best[:0]
	for start := 1; start < n; start++ {
		if !r.context[start] || r.p[0][start] == 0 {
			continue
		}
		for end := start; end < n && end-start < s.maxTokens; end++ {
			if c := (candidate{r.p[0][start] * r.p[1][end], start, end}); r.context[end] && c.score != 0 {
				r.offer(c, limit)
			}
		}
	}
}

// offer inserts c when it is among the best limit candidates.
func (r *run) offer(c candidate, limit int) {
	if len(r.best) == limit {
		if worst := &r.best[limit-1]; c.score < worst.score || c.compare(*worst) > 0 {
			return
		}
		r.best = r.best[:limit-1]
	}
	at, _ := slices.BinarySearchFunc(r.best, c, candidate.compare)
	r.best = slices.Insert(r.best, at, c)
}

// collect turns the candidates into passages. Those whose texts differ in case only become one.
func (r *run) collect(first int) error {
	for i := range r.best {
		start, end, err := r.extent(&r.best[i])
		if err != nil {
			return err
		}
		p := r.tokens.passage(start, end, float32(r.best[i].score))
		same := slices.IndexFunc(r.list[first:], func(q passage) bool { return bytes.EqualFold(q.text, p.text) })
		if same >= 0 {
			r.list[first+same].score += p.score
		} else {
			r.list = append(r.list, p)
		}
	}
	return nil
}

// extent returns the byte range of a candidate, extended to whole words where those are known.
func (r *run) extent(c *candidate) (start, end int, err error) {
	from, to := c.start, c.end
	if words := r.tokens.words; words != nil && words[from] >= 0 && words[to] >= 0 {
		for from > 0 && r.context[from-1] && words[from-1] == words[from] {
			from--
		}
		for to+1 < len(words) && r.context[to+1] && words[to+1] == words[to] {
			to++
		}
	}
	if start, _, err = r.tokens.span(from); err != nil {
		return 0, 0, err
	}
	if _, end, err = r.tokens.span(to); err != nil {
		return 0, 0, err
	}
	return start, max(start, end), nil
}

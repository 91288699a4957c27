package spans

import (
	"context"
	"fmt"
	"strconv"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/steps"
)

// The parameters of answer_spans.
const (
	paramTopK      = "top_k"
	paramMaxTokens = "max_answer_tokens"
	paramEmpty     = "no_answer"
)

// The inputs of answer_spans.
const (
	answerStart = iota
	answerEnd
	answerOffsets
	answerSpecial
	answerText
	answerMask
	answerWords
	answerSequences
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
			{Key: paramTopK, Default: "1", Doc: "number of answers to return, at most " + strconv.Itoa(maxTopK)},
			{Key: paramMaxTokens, Default: "15", Doc: "largest number of tokens in an answer"},
			{
				Key: paramEmpty, Default: "false", Values: []string{"true", "false"},
				Doc: "whether the empty answer is a candidate, scored by the first token, for models trained with unanswerable questions",
			},
		}, commonParams()...),
		Examples:  []steps.Example{answerExample()},
		Inline:    true,
		Signature: answerSignature,
		New:       newAnswerStep,
	}
}

func answerExample() steps.Example {
	return steps.Example{
		Config: steps.ExampleConfig("", "answer_spans", "top_k", "2"),
		Request: `{"inputs": [
    {"name": "start_logits", "datatype": "FP32", "shape": [8], "data": [0, 9, 0, 4, 1, 0, 3, 0]},
    {"name": "end_logits", "datatype": "FP32", "shape": [8], "data": [0, 0, 0, 0, 5, 0, 2, 9]},
    {"name": "offset_mapping", "datatype": "INT64", "shape": [8, 2], "data": [0, 0, 0, 3, 0, 0, 0, 3, 4, 8, 9, 14, 15, 19, 0, 0]},
    {"name": "special_tokens_mask", "datatype": "INT64", "shape": [8], "data": [1, 0, 1, 0, 0, 0, 0, 1]},
    {"name": "TEXT", "datatype": "BYTES", "shape": [1], "data": ["Ada Byron wrote code"]}]}`,
	}
}

func answerSignature(s *steps.Settings) (*config.Signature, error) {
	k, err := s.Int(paramTopK, 1)
	if err != nil {
		return nil, err
	}
	return &config.Signature{
		Inputs: []config.Port{
			answerStart:     s.FloatPort("start_logits", -1),
			answerEnd:       s.FloatPort("end_logits", -1),
			answerOffsets:   ints("offset_mapping", false, -1, 2),
			answerSpecial:   ints("special_tokens_mask", false, -1),
			answerText:      {Name: "TEXT", DType: tensor.Bytes, Dims: tensor.Of(1)},
			answerMask:      ints("attention_mask", true, -1),
			answerWords:     ints("word_ids", true, -1),
			answerSequences: ints("sequence_ids", true, -1),
		},
		Outputs: outPorts(s, "answers", false, int64(k)),
	}, nil
}

// answerStep is the step "answer_spans".
type answerStep struct {
	in              in
	out             out
	names           []string // of the inputs
	topK, maxTokens int
	empty           bool
	scratch         pool.Of[answerRun]
}

// answerRun is the memory of one execution.
type answerRun struct {
	found                found
	tokens               tokens
	starts, ends         []float64 // probabilities
	spareStart, spareEnd []float32
	context              []bool // the tokens that an answer may contain
	heap                 []candidate
}

func newAnswerStep(s *steps.Settings) (steps.Step, error) {
	sig, err := answerSignature(s)
	if err != nil {
		return nil, err
	}
	step := &answerStep{in: newIn(s)}
	if step.topK, err = s.Int(paramTopK, 1); err != nil {
		return nil, err
	}
	if step.topK > maxTopK {
		return nil, fmt.Errorf("parameter '%s' of model '%s' is %d, expected at most %d", paramTopK, s.Model, step.topK, maxTopK)
	}
	if step.maxTokens, err = s.Int(paramMaxTokens, 1); err != nil {
		return nil, err
	}
	if step.empty, err = s.Bool(paramEmpty); err != nil {
		return nil, err
	}
	step.in.offsets, step.in.special, step.in.text = answerOffsets, answerSpecial, answerText
	step.in.mask, step.in.words, step.in.sequences = answerMask, answerWords, answerSequences
	step.out = out{json: s.Params[paramOutput] == asJSON, batched: s.MaxBatch > 0, width: step.topK}
	for i := range sig.Inputs {
		step.names = append(step.names, sig.Inputs[i].Name)
	}
	return step, nil
}

// Run finds the answers of each row.
//
// hot: no allocation once the pooled memory has grown.
func (s *answerStep) Run(ctx context.Context, b *backends.Batch) error {
	n, err := s.in.extent(b, s.names)
	if err != nil {
		return err
	}
	r := s.scratch.Get()
	defer s.recycle(r)
	r.found.reset()
	texts := b.In[answerText].Bytes()
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

func (s *answerStep) recycle(r *answerRun) {
	if cap(r.found.list) > keep || cap(r.starts) > keep || cap(r.tokens.starts) > keep || cap(r.found.bytes) > 16*keep {
		return
	}
	r.found.forget()
	r.tokens = tokens{places: places{starts: r.tokens.starts}}
	s.scratch.Put(r)
}

func (s *answerStep) row(r *answerRun, b *backends.Batch, row, n int, text []byte) error {
	if err := s.in.row(&r.tokens, b, row, n, text); err != nil {
		return err
	}
	r.markContext(n)
	var logits []float32
	var err error
	logits, r.spareStart = steps.Floats(r.spareStart, &b.In[answerStart], row*n, n)
	if r.starts, err = r.softmax(r.starts, logits, s.names[answerStart]); err != nil {
		return err
	}
	logits, r.spareEnd = steps.Floats(r.spareEnd, &b.In[answerEnd], row*n, n)
	if r.ends, err = r.softmax(r.ends, logits, s.names[answerEnd]); err != nil {
		return err
	}
	first := len(r.found.list)
	s.search(r, n)
	if err := s.collect(r, first); err != nil {
		return err
	}
	if s.empty && n > 0 {
		r.found.list = append(r.found.list, passage{score: float32(r.starts[0] * r.ends[0])})
	}
	r.found.list = r.found.list[:first+rank(r.found.list[first:], s.topK)]
	return nil
}

package spans

import (
	"strconv"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
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
		Config: `parameters { key: "step" value { string_value: "answer_spans" } }
parameters { key: "top_k" value { string_value: "2" } }`,
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

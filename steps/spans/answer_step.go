package spans

import (
	"context"
	"fmt"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/steps"
)

// answerStep is the step "answer_spans".
type answerStep struct {
	in              in
	out             out
	names           []string // of the inputs
	topK, maxTokens int
	empty           bool
	scratch         pool.Of[answerRun]
}

var _ steps.Step = (*answerStep)(nil)

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

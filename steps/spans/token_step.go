package spans

import (
	"context"
	"slices"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/steps"
)

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

var _ steps.Step = (*tokenStep)(nil)

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

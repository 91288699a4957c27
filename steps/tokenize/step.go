package tokenize

import (
	"context"
	"sync"

	"tutti/backends"
	"tutti/core/status"
	"tutti/core/tensor"
	"tutti/steps"
)

// step is the step "tokenize".
type step struct {
	tok      *Tokenizer
	batched  bool
	maxBytes int // of one text
	limit    int // of tokens in a row; 0 for none, or where rows are truncated
	scratch  sync.Pool
}

var _ steps.Step = (*step)(nil)

// rows holds the encodings of a batch until the longest is known.
type rows struct {
	enc              Encoding
	ids, masks, kind []int32
	ends             []int // where each row ends in the three
	longest          int
}

// keepBytes is the largest normalized text whose memory is kept for the next batch.
const keepBytes = 1 << 18

// Run encodes one text, or pair of texts, per row.
//
// hot: no allocation once the pooled memory has grown.
func (s *step) Run(ctx context.Context, b *backends.Batch) error {
	r, ok := s.scratch.Get().(*rows)
	if !ok {
		r = new(rows)
	}
	defer s.recycle(r)
	r.reset()
	if err := s.encodeAll(ctx, r, b); err != nil {
		return err
	}
	for port, from := range [...][]int32{portIDs: r.ids, portMask: r.masks, portTypes: r.kind} {
		if err := s.write(b, r, port, from); err != nil {
			return err
		}
	}
	return nil
}

func (r *rows) reset() {
	r.ids, r.masks, r.kind, r.ends, r.longest = r.ids[:0], r.masks[:0], r.kind[:0], r.ends[:0], 0
}

// recycle keeps the memory of usual texts.
func (s *step) recycle(r *rows) {
	if cap(r.enc.text.buf) <= keepBytes && cap(r.ids) <= keepBytes {
		s.scratch.Put(r)
	}
}

// encodeAll encodes every row. A row that cannot be fails its request and stays empty.
func (s *step) encodeAll(ctx context.Context, r *rows, b *backends.Batch) error {
	texts := b.In[portText].Bytes()
	var pairs []byte
	if b.In[portPair].Present() {
		pairs = b.In[portPair].Bytes()
	}
	for row := range b.Rows {
		if err := ctx.Err(); err != nil {
			return err
		}
		var text, pair []byte
		var ok bool
		if text, texts, ok = tensor.NextBytes(texts); ok && pairs != nil {
			pair, pairs, ok = tensor.NextBytes(pairs)
		}
		if !ok {
			return status.Errorf(status.InvalidArg, "input 'TEXT' or 'TEXT_PAIR' ends before row %d of %d", row, b.Rows)
		}
		if err := s.encode(r, text, pair, b.In[portPair].Present()); err != nil {
			b.Fail(row, err)
		}
		r.ends = append(r.ends, len(r.ids))
	}
	return nil
}

// encode appends one row to r.
func (s *step) encode(r *rows, text, pair []byte, paired bool) error {
	if n := max(len(text), len(pair)); n > s.maxBytes {
		name := "TEXT"
		if len(pair) > s.maxBytes {
			name = "TEXT_PAIR"
		}
		return status.Errorf(status.InvalidArg, "input '%s' has a text of %d bytes, expected at most %d (parameter '%s')",
			name, n, s.maxBytes, paramMaxBytes)
	}
	var err error
	if paired {
		err = s.tok.EncodePair(&r.enc, text, pair)
	} else {
		err = s.tok.Encode(&r.enc, text)
	}
	if err != nil {
		return status.Errorf(status.InvalidArg, "input 'TEXT': %v", err)
	}
	n := r.enc.Len()
	if s.limit > 0 && n > s.limit {
		return status.Errorf(status.InvalidArg, "input 'TEXT' has %d tokens, expected at most %d", n, s.limit)
	}
	r.ids = append(r.ids, r.enc.IDs...)
	r.masks = append(r.masks, r.enc.Attention...)
	r.kind = append(r.kind, r.enc.TypeIDs...)
	r.longest = max(r.longest, n)
	return nil
}

// write makes an output of the rows' values in from.
func (s *step) write(b *backends.Batch, r *rows, port int, from []int32) error {
	shape := tensor.Of(int64(r.longest))
	if s.batched {
		shape = tensor.Of(int64(b.Rows), int64(r.longest))
	}
	t, err := b.Alloc(port, tensor.Int64, shape)
	if err != nil {
		return err
	}
	fill := int64(0)
	if port == portIDs {
		fill = int64(s.tok.PadID())
	}
	out, start := tensor.Slice[int64](t), 0
	for _, end := range r.ends {
		row := out[:r.longest]
		out = out[r.longest:]
		for i, v := range from[start:end] {
			row[i] = int64(v)
		}
		for i := end - start; i < len(row); i++ {
			row[i] = fill
		}
		start = end
	}
	return nil
}

package tokenize

import (
	"context"
	"strconv"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/internal/tokenizer"
	"github.com/tutti-server/tutti/steps"
)

// NewDetokenizeFactory returns the step "detokenize".
func NewDetokenizeFactory() steps.Factory {
	return steps.Factory{
		Name: "detokenize",
		Doc: "Turns token ids of a language model into text, by the decoder of the given Hugging Face " +
			"tokenizer.json or a file of another format. Ids whose attention mask is 0 and those of the padding are skipped. A row with an id that " +
			"is not in the vocabulary fails its request.",
		Params: append(formatParams(), []steps.Param{
			{Key: "skip_special_tokens", Default: "true", Values: []string{"true", "false"}, Doc: "whether special tokens are skipped"},
			{Key: "pad_id", Default: "none", Doc: "padding id, skipped at every position, for example -1; none for none"},
			{Key: "dtype", Default: "int64", Values: []string{"int64", "int32"}, Doc: "type of the ids"},
		}...),
		Inline: true,
		Examples: []steps.Example{{
			Config:  steps.ExampleConfig("", "detokenize", "tokenizer_file", "vocab.txt"),
			Files:   map[string][]byte{"vocab.txt": []byte(exampleVocabulary)},
			Request: `{"inputs": [{"name": "ids", "datatype": "INT64", "shape": [6], "data": [2, 4, 5, 6, 7, 3]}]}`,
		}},
		Signature: detokenizeSignature,
		New:       newDetokenizeStep,
	}
}

func detokenizeSignature(s *steps.Settings) (*config.Signature, error) {
	ids := tensor.Int64
	if s.Params["dtype"] == "int32" {
		ids = tensor.Int32
	}
	return &config.Signature{
		Inputs: []config.Port{
			{Name: "ids", DType: ids, Dims: tensor.Of(-1)},
			{Name: "attention_mask", DType: tensor.Int64, Dims: tensor.Of(-1), Optional: true},
		},
		Outputs: []config.Port{{Name: "TEXT", DType: tensor.Bytes, Dims: tensor.Of(1)}},
	}, nil
}

func newDetokenizeStep(s *steps.Settings) (steps.Step, error) {
	out := &detokenizeStep{
		batched: s.MaxBatch > 0, narrow: s.Params["dtype"] == "int32", skipSpecial: s.Params["skip_special_tokens"] == "true",
	}
	var err error
	if out.tok, err = load(s); err != nil {
		return nil, err
	}
	if text := s.Params["pad_id"]; text != "none" {
		if out.padID, err = strconv.ParseInt(text, 10, 64); err != nil {
			return nil, status.Errorf(status.InvalidArg, "parameter 'pad_id' of model '%s' is '%s', expected an integer or none", s.Model, text)
		}
		out.padded = true
	}
	return out, nil
}

// detokenizeStep is the step "detokenize".
type detokenizeStep struct {
	tok             *tokenizer.Tokenizer
	skipSpecial     bool
	padded          bool // padID is left out
	padID           int64
	batched, narrow bool
	scratch         pool.Of[texts]
}

// texts collects the texts of a batch, as BYTES elements, until their total size is known.
type texts struct {
	d   tokenizer.Decoding
	ids []int64 // of one row
	out []byte
}

// Run decodes one row of ids to one text.
//
// hot: no allocation once the pooled memory has grown.
func (s *detokenizeStep) Run(ctx context.Context, b *backends.Batch) error {
	t := s.scratch.Get()
	defer s.recycle(t)
	t.out = t.out[:0]
	if err := s.decodeAll(ctx, t, b); err != nil {
		return err
	}
	return steps.Write(b, 0, tensor.Bytes, steps.Shape(b, s.batched, 1), t.out)
}

// recycle returns memory of a usual size to the pool.
func (s *detokenizeStep) recycle(t *texts) {
	if cap(t.out) <= maxPooledBytes && t.d.Memory() <= maxPooledBytes && cap(t.ids) <= maxPooledBytes {
		s.scratch.Put(t)
	}
}

// decodeAll decodes every row. A row that cannot be decoded fails its request and becomes an empty text.
func (s *detokenizeStep) decodeAll(ctx context.Context, t *texts, b *backends.Batch) error {
	in := &b.In[0]
	n := int(in.Shape.Dim(in.Shape.Rank() - 1))
	var mask []int64
	if m := &b.In[1]; m.Present() {
		if found := int(m.Shape.Dim(m.Shape.Rank() - 1)); found != n {
			return status.Errorf(status.InvalidArg, "input 'attention_mask' has %d values for %d ids", found, n)
		}
		mask = tensor.Slice[int64](m)
	}
	for row := range b.Rows {
		if err := ctx.Err(); err != nil {
			return err
		}
		if s.narrow {
			t.ids = appendKept(s, t.ids[:0], tensor.Slice[int32](in)[row*n:][:n], mask)
		} else {
			t.ids = appendKept(s, t.ids[:0], tensor.Slice[int64](in)[row*n:][:n], mask)
		}
		mask = mask[min(n, len(mask)):]
		t.d.Text = t.d.Text[:0]
		if err := s.tok.Decode(&t.d, t.ids, s.skipSpecial); err != nil {
			b.Fail(row, status.Errorf(status.InvalidArg, "input 'ids': %v", err))
		}
		t.out = tensor.AppendBytes(t.out, t.d.Text)
	}
	return nil
}

// appendKept appends the ids that are neither masked nor padding. Without a mask, mask is empty.
func appendKept[T int32 | int64](s *detokenizeStep, dst []int64, ids []T, mask []int64) []int64 {
	for i, id := range ids {
		if (len(mask) == 0 || mask[i] != 0) && (!s.padded || int64(id) != s.padID) {
			dst = append(dst, int64(id))
		}
	}
	return dst
}

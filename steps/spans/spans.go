// Package spans holds the steps that turn scores per token into passages of the text: "token_spans" for token classifiers, such as
// named entity recognition, and "answer_spans" for extractive question answering. For example, the labels B-PER and I-PER on the
// tokens "An" and "##na" become the passage "Anna" with label PER, start 0 and end 4.
//
// The rules are those of Hugging Face's pipelines for the same tasks; testdata has the results of those as gold files.
package spans

import (
	"context"
	"slices"
	"unicode/utf8"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/steps"
)

const (
	inCharacters = "characters"
	asJSON       = "json"
)

// commonParams are the parameters that both steps have.
func commonParams() []steps.Param {
	units := []string{"bytes", inCharacters}
	return []steps.Param{
		{Key: "offsets", Default: inCharacters, Values: units, Doc: "unit of the input offset_mapping"},
		{Key: "positions", Default: inCharacters, Values: units, Doc: "unit of start and end in the output"},
		{Key: "output", Default: asJSON, Values: []string{asJSON, "tensors"}, Doc: "one JSON array per row, or a tensor per property"},
	}
}

// The inputs after the logits, from step.first on. Only answer_spans has inSequences.
const (
	inOffsets = iota
	inSpecial
	inText
	inMask
	inWords
	inSequences
)

// inputs returns the logits and the inputs that both steps have.
func inputs(logits ...config.Port) []config.Port {
	return append(logits,
		ints("offset_mapping", false, -1, 2),
		ints("special_tokens_mask", false, -1),
		config.Port{Name: "TEXT", DType: tensor.Bytes, Dims: tensor.Of(1)},
		ints("attention_mask", true, -1),
		ints("word_ids", true, -1))
}

func ints(name string, optional bool, dims ...int64) config.Port {
	return config.Port{Name: name, DType: tensor.Int64, Dims: tensor.Of(dims...), Optional: optional}
}

// step is token_spans or answer_spans.
type step struct {
	finder
	out

	in                    []config.Port
	first                 int  // the input offset_mapping
	characters, positions bool // the units of offset_mapping, and of start and end
	scratch               pool.Of[run]
}

// finder finds the passages of a row of n tokens and appends them to r.list.
type finder interface {
	find(r *run, b *backends.Batch, row, n int) error
}

// run is the memory of one execution.
type run struct {
	list   []passage
	ends   []int // where each row ends in list
	bytes  []byte
	tokens tokens
	spare  [2][]float32 // logits that were FP16

	tokenRun
	answerRun
}

func newStep(s *steps.Settings, f finder, in []config.Port, first int, o out) *step {
	o.json, o.batched = s.Params["output"] == asJSON, s.MaxBatch > 0
	return &step{
		finder: f, out: o, in: in, first: first,
		characters: s.Params["offsets"] == inCharacters, positions: s.Params["positions"] == inCharacters,
	}
}

// Run finds the passages of each row.
//
// hot: no allocation once the pooled memory has grown.
func (s *step) Run(ctx context.Context, b *backends.Batch) error {
	n, err := s.extent(b)
	if err != nil {
		return err
	}
	r := s.scratch.Get()
	defer s.recycle(r)
	r.list, r.ends, r.bytes = r.list[:0], r.ends[:0], r.bytes[:0]
	texts := b.In[s.first+inText].Bytes()
	for row := range b.Rows {
		if err := ctx.Err(); err != nil {
			return err
		}
		text, rest, ok := tensor.NextBytes(texts)
		if !ok {
			return status.Errorf(status.InvalidArg, "input 'TEXT' ends before row %d of %d", row, b.Rows)
		}
		texts = rest
		start := len(r.list)
		if err := s.row(r, b, row, n, text); err != nil {
			r.list = r.list[:start]
			b.Fail(row, err)
		}
		r.ends = append(r.ends, len(r.list))
	}
	return s.write(b, r)
}

// keep is the largest number of passages or logits whose memory goes back to the pool.
const keep = 1 << 18

func (s *step) recycle(r *run) {
	if max(cap(r.list), cap(r.spare[0]), cap(r.p[0]), cap(r.tokens.starts), cap(r.bytes)/16) <= keep {
		clear(r.list[:cap(r.list)])
		r.tokens, r.logits = tokens{places: places{starts: r.tokens.starts}}, nil
		s.scratch.Put(r)
	}
}

// extent returns the number of tokens, which every input has.
func (s *step) extent(b *backends.Batch) (int, error) {
	axis := 0
	if s.batched {
		axis = 1
	}
	n := b.In[0].Shape.Dim(axis)
	for i := range b.In {
		if i == s.first+inText || !b.In[i].Present() {
			continue
		}
		if got := b.In[i].Shape.Dim(axis); got != n || s.batched && b.In[i].Shape.Dim(0) != int64(b.Rows) {
			return 0, status.Errorf(status.InvalidArg, "unexpected shape for input '%s', expected %d tokens as '%s' has, got %s",
				s.in[i].Name, n, s.in[0].Name, b.In[i].Shape)
		}
	}
	if len(s.labels) > 0 && b.In[0].Shape.Dim(axis+1) != int64(len(s.labels)) {
		return 0, status.Errorf(status.InvalidArg, "input 'logits': expected %d classes, one per line of labels_file, found %d",
			len(s.labels), b.In[0].Shape.Dim(axis+1))
	}
	return int(n), nil
}

// maxText is the longest text in bytes that a step accepts.
const maxText = 1 << 30

// row finds the passages of a row of n tokens with the given text.
func (s *step) row(r *run, b *backends.Batch, row, n int, text []byte) error {
	if len(text) > maxText {
		return status.Errorf(status.InvalidArg, "input 'TEXT' has a text of %d bytes, expected at most %d", len(text), maxText)
	}
	if !utf8.Valid(text) {
		return status.Errorf(status.InvalidArg, "input 'TEXT' is not valid UTF-8")
	}
	t := &r.tokens
	t.read(text)
	t.characters, t.positions = s.characters, s.positions
	t.offsets = tensor.Slice[int64](&b.In[s.first+inOffsets])[2*row*n : 2*(row+1)*n]
	for i, column := range [...]*[]int64{inSpecial: &t.special, inMask: &t.mask, inWords: &t.words, inSequences: &t.sequences} {
		if port := s.first + i; column != nil && port < len(b.In) && b.In[port].Present() {
			*column = tensor.Slice[int64](&b.In[port])[row*n : (row+1)*n]
		}
	}
	return s.find(r, b, row, n)
}

// tokens is a row's input besides the logits.
type tokens struct {
	places

	offsets   []int64 // two per token
	special   []int64
	mask      []int64 // nil without the input
	words     []int64 // nil without the input
	sequences []int64 // nil without the input

	characters, positions bool // see step
}

// seen reports whether token i is one of the text.
func (t *tokens) seen(i int) bool { return t.special[i] == 0 && (t.mask == nil || t.mask[i] != 0) }

// span is the bytes of the text that token i was made of.
func (t *tokens) span(i int) (start, end int, err error) {
	from, to := t.offsets[2*i], t.offsets[2*i+1]
	if t.characters {
		start, end = t.ofCharacter(from), t.ofCharacter(to)
	} else {
		start, end = int(from), int(to)
	}
	if from < 0 || to < from || start < 0 || end < start || end > len(t.text) {
		return 0, 0, status.Errorf(status.InvalidArg, "input 'offset_mapping': token %d is at [%d,%d], expected a range of the text of %d bytes",
			i, from, to, len(t.text))
	}
	return start, end, nil
}

// passage makes a passage of a range of bytes.
func (t *tokens) passage(start, end int, score float32) passage {
	start, end = t.whole(start, end)
	out := passage{text: t.text[start:end], start: int32(start), end: int32(end), score: score}
	if t.positions {
		out.start, out.end = int32(t.character(start)), int32(t.character(end))
	}
	return out
}

// places translates between bytes and characters of a text.
type places struct {
	text []byte
	// starts has the first byte of each character, and the text's length at the end; empty for ASCII.
	starts []int32
}

// read sets the text, which must be valid UTF-8 and shorter than 2 GiB.
func (p *places) read(text []byte) {
	p.text, p.starts = text, p.starts[:0]
	if !slices.ContainsFunc(text, func(c byte) bool { return c >= utf8.RuneSelf }) {
		return
	}
	for i, c := range text {
		if utf8.RuneStart(c) {
			p.starts = append(p.starts, int32(i))
		}
	}
	p.starts = append(p.starts, int32(len(text)))
}

// ofCharacter returns the first byte of character i; -1 when there is none.
func (p *places) ofCharacter(i int64) int {
	switch {
	case i < 0:
		return -1
	case len(p.starts) == 0 && i <= int64(len(p.text)):
		return int(i)
	case i < int64(len(p.starts)):
		return int(p.starts[i])
	default:
		return -1
	}
}

// character returns the number of the character that contains byte i.
func (p *places) character(i int) int {
	if len(p.starts) == 0 {
		return i
	}
	at, exact := slices.BinarySearch(p.starts, int32(i))
	if !exact {
		at--
	}
	return at
}

// whole extends a range of bytes to whole characters, which byte-level tokens may split. For example, bytes 1 to 2 of "é!" become 0 to 2.
func (p *places) whole(start, end int) (from, to int) {
	for start > 0 && start < len(p.text) && !utf8.RuneStart(p.text[start]) {
		start--
	}
	for end < len(p.text) && !utf8.RuneStart(p.text[end]) {
		end++
	}
	return start, end
}

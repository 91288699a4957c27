// Package spans holds the steps that turn scores per token into passages of the text: "token_spans" for token classifiers, such as
// named entity recognition, and "answer_spans" for extractive question answering. For example, the labels B-PER and I-PER on the
// tokens "An" and "##na" become the passage "Anna" with label PER, start 0 and end 4.
//
// The rules are those of Hugging Face's pipelines for the same tasks; testdata has the results of those as gold files.
//
//	token_factory.go, answer_factory.go  parameters and ports of the steps
//	token_step.go, token_group.go        labels of tokens, words, and their grouping
//	answer_step.go, answer_search.go     the most probable pairs of a start and an end
//	input.go                             the inputs that both share: checks, and one row
//	place.go                             offsets to bytes of the text, and back to positions
//	output.go, json.go                   the passages as tensors or as JSON
package spans

import (
	"slices"
	"unicode/utf8"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
)

// The parameters that both steps have.
const (
	paramOffsets   = "offsets"
	paramPositions = "positions"
	paramOutput    = "output"

	inBytes      = "bytes"
	inCharacters = "characters"

	asJSON    = "json"
	asTensors = "tensors"
)

// commonParams are the parameters that both steps have.
func commonParams() []steps.Param {
	units := []string{inBytes, inCharacters}
	return []steps.Param{
		{Key: paramOffsets, Default: inCharacters, Values: units, Doc: "unit of the input offset_mapping"},
		{Key: paramPositions, Default: inCharacters, Values: units, Doc: "unit of start and end in the output"},
		{Key: paramOutput, Default: asJSON, Values: []string{asJSON, asTensors}, Doc: "one JSON array per row, or a tensor per property"},
	}
}

// maxText is the longest text in bytes that a step accepts.
const maxText = 1 << 30

// tokens is a row's input besides the logits.
type tokens struct {
	places
	offsets    []int64 // two per token
	special    []int64
	mask       []int64 // nil without the input
	words      []int64 // nil without the input
	sequences  []int64 // nil without the input
	characters bool    // offsets count characters
}

// in has the ports of a step's inputs.
type in struct {
	offsets, special, text, mask, words, sequences int
	characters, positions                          bool
	batched                                        bool
}

func newIn(s *steps.Settings) in {
	return in{
		characters: s.Params[paramOffsets] == inCharacters, positions: s.Params[paramPositions] == inCharacters,
		batched: s.MaxBatch > 0, sequences: -1,
	}
}

// ints is an INT64 port.
func ints(name string, optional bool, dims ...int64) config.Port {
	return config.Port{Name: name, DType: tensor.Int64, Dims: tensor.Of(dims...), Optional: optional}
}

// extent returns the number of tokens, which every input has.
func (p *in) extent(b *backends.Batch, sig []string) (int, error) {
	axis := 0
	if p.batched {
		axis = 1
	}
	n := b.In[0].Shape.Dim(axis)
	for i := range b.In {
		if i == p.text || !b.In[i].Present() {
			continue
		}
		if got := b.In[i].Shape.Dim(axis); got != n || p.batched && b.In[i].Shape.Dim(0) != int64(b.Rows) {
			return 0, status.Errorf(status.InvalidArg, "unexpected shape for input '%s', expected %d tokens as '%s' has, got %s",
				sig[i], n, sig[0], b.In[i].Shape)
		}
	}
	return int(n), nil
}

// row sets t to a row of n tokens with the given text.
func (p *in) row(t *tokens, b *backends.Batch, row, n int, text []byte) error {
	if len(text) > maxText {
		return status.Errorf(status.InvalidArg, "input 'TEXT' has a text of %d bytes, expected at most %d", len(text), maxText)
	}
	if !utf8.Valid(text) {
		return status.Errorf(status.InvalidArg, "input 'TEXT' is not valid UTF-8")
	}
	t.read(text)
	t.characters = p.characters
	t.offsets = tensor.Slice[int64](&b.In[p.offsets])[2*row*n : 2*(row+1)*n]
	t.special = column(b, p.special, row, n)
	t.mask, t.words, t.sequences = column(b, p.mask, row, n), column(b, p.words, row, n), column(b, p.sequences, row, n)
	return nil
}

// column returns a row of an optional input, nil without it.
func column(b *backends.Batch, port, row, n int) []int64 {
	if port < 0 || !b.In[port].Present() {
		return nil
	}
	return tensor.Slice[int64](&b.In[port])[row*n : (row+1)*n]
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
func (p *in) passage(t *tokens, start, end int, score float32) passage {
	start, end = t.whole(start, end)
	out := passage{text: t.text[start:end], start: int32(start), end: int32(end), score: score}
	if p.positions {
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
	if ascii(text) {
		return
	}
	for i, c := range text {
		if utf8.RuneStart(c) {
			p.starts = append(p.starts, int32(i))
		}
	}
	p.starts = append(p.starts, int32(len(text)))
}

func ascii(text []byte) bool {
	for _, c := range text {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	return true
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

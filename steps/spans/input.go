package spans

import (
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

package tokenize

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

// MaxText is the longest text in bytes that Encode takes, so that offsets fit their type.
const MaxText = 1 << 28

// Tokenizer is a loaded tokenizer.json. It never changes and is safe for concurrent use.
type Tokenizer struct {
	before, after *addedTokens // matched in the source and in the normalized text
	normalizer    normalizer
	preTokenizer  preTokenizer
	model         model
	template      *template
	truncation    *Truncation
	padding       *padding
	padID         int32
	detokenizer   detokenizer
}

// Encode makes dst the encoding of text. It fails on text that is not UTF-8 or longer than MaxText.
func (t *Tokenizer) Encode(dst *Encoding, text []byte) error {
	if err := t.sequence(dst, 0, text); err != nil {
		return err
	}
	return t.assemble(dst, false)
}

// EncodePair makes dst the encoding of two texts together. It fails as Encode does, and when the truncation strategy
// cannot bring the pair down to the limit.
func (t *Tokenizer) EncodePair(dst *Encoding, text, pair []byte) error {
	if err := t.sequence(dst, 0, text); err != nil {
		return err
	}
	if err := t.sequence(dst, 1, pair); err != nil {
		return fmt.Errorf("second text: %w", err)
	}
	return t.assemble(dst, true)
}

// PadID is the id that shorter rows are filled up with: the padding section's, that of "[PAD]", or 0.
func (t *Tokenizer) PadID() int32 { return t.padID }

// MaxLength is the length that encodings are truncated to, 0 when they are not.
func (t *Tokenizer) MaxLength() int {
	if t.truncation == nil {
		return 0
	}
	return t.truncation.MaxLength
}

// WithMaxLength returns a tokenizer that truncates to n tokens, special ones included, with the file's strategy and
// direction, or longest first from the right where the file has no truncation.
func (t *Tokenizer) WithMaxLength(n int) (*Tokenizer, error) {
	c, cut := *t, Truncation{Strategy: longestFirst, Direction: right}
	if t.truncation != nil {
		cut = *t.truncation
	}
	cut.MaxLength = n
	c.truncation = &cut
	return &c, c.checkTruncation()
}

// WithoutTruncation returns a tokenizer that leaves texts whole.
func (t *Tokenizer) WithoutTruncation() *Tokenizer {
	c := *t
	c.truncation = nil
	return &c
}

func (t *Tokenizer) checkTruncation() error {
	if n := t.template.added(false); t.truncation.MaxLength <= n {
		return fmt.Errorf("truncation to max_length %d leaves no room beside %d special tokens", t.truncation.MaxLength, n)
	}
	return nil
}

// errNotUTF8 is the error of a text with invalid bytes.
var errNotUTF8 = errors.New("text is not valid UTF-8")

// sequence fills e.seqs[which] with the tokens of one text.
func (t *Tokenizer) sequence(e *Encoding, which int, src []byte) error {
	if len(src) > MaxText {
		return fmt.Errorf("text has %d bytes, expected at most %d", len(src), MaxText)
	}
	if !utf8.Valid(src) {
		return fmt.Errorf("%w: byte %d", errNotUTF8, firstInvalid(src))
	}
	e.text.track = e.TrackOffsets
	seq := e.seqs[which][:0]
	e.pieces = t.before.cut(e.pieces[:0], src)
	for _, p := range e.pieces {
		if p.id != noID {
			if !e.TrackOffsets {
				p.at = Span{}
			}
			seq = append(seq, token{p.id, p.at})
			continue
		}
		e.text.reset(int(p.at.Start))
		t.normalizer.normalize(&e.text, src[p.at.Start:p.at.End], int(p.at.Start))
		seq = t.normalized(e, seq)
	}
	e.seqs[which] = seq
	return nil
}

// normalized appends the tokens of one normalized piece.
func (t *Tokenizer) normalized(e *Encoding, seq []token) []token {
	e.inner = t.after.cut(e.inner[:0], e.text.buf)
	for _, p := range e.inner {
		if p.id != noID {
			seq = append(seq, token{p.id, e.text.source(p.at)})
			continue
		}
		e.text.words = e.text.words[:0]
		t.preTokenizer.split(&e.text, p.at)
		seq = t.model.tokenize(&e.text, seq)
	}
	return seq
}

// assemble truncates the sequences, joins them by the template and pads the result.
func (t *Tokenizer) assemble(e *Encoding, pair bool) error {
	e.reset()
	if !pair {
		e.seqs[1] = e.seqs[1][:0]
	}
	full := e.seqs
	if c := t.truncation; c != nil {
		n1, n2, err := c.lengths(len(full[0]), len(full[1]), c.MaxLength-t.template.added(pair), pair)
		if err != nil {
			return err
		}
		e.seqs[0], e.seqs[1] = c.cut(full[0], n1), c.cut(full[1], n2)
	}
	t.template.fill(e, pair)
	e.seqs = full
	if t.padding != nil {
		t.padding.apply(e)
	}
	return nil
}

// firstInvalid is the place of the first byte that is not UTF-8.
func firstInvalid(b []byte) int {
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return len(b)
}

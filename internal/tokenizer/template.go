package tokenizer

import (
	"bytes"
	"unicode"
	"unicode/utf8"
)

// templatePart is one part of a template: sequence 0 or 1 of the input, or special tokens (sequence -1).
type templatePart struct {
	sequence int
	ids      []int32
	typeID   int32
}

const specialPart = -1

// template is a post-processor that adds special tokens: the parts of the encoding of a single text and of a pair. For example, BERT's
// pair is [CLS], sequence 0, [SEP], sequence 1, [SEP].
type template struct {
	single, pair []templatePart
	shift        [2]int // the start of each text in its encoding, for trims after the template
	flat         bool   // overflow is of type 0 as well
}

func (t *template) parts(pair bool) []templatePart {
	if pair {
		return t.pair
	}
	return t.single
}

// added returns the number of special tokens that the template adds.
func (t *template) added(pair bool) (n int) {
	for _, p := range t.parts(pair) {
		n += len(p.ids)
	}
	return n
}

// fill writes the ranges at of from's sequences and the special tokens to e. Windows after the first (not main) have the number of
// the sequence as type id.
func (t *template) fill(tok *Tokenizer, e, from *Encoding, at [2]Span, main [2]bool, pair bool) {
	for _, p := range t.parts(pair) {
		for _, id := range p.ids {
			e.add(id, p.typeID, 1)
		}
		if p.sequence == specialPart {
			continue
		}
		typeID := p.typeID
		if !main[p.sequence] && !t.flat {
			typeID = int32(p.sequence)
		}
		tokens := from.seqs[p.sequence][at[p.sequence].Start:at[p.sequence].End]
		e.addTokens(tokens, typeID)
		if from.TrackOffsets {
			tok.addTracked(e, from, p.sequence, tokens)
		}
	}
}

// addTracked appends Offsets, Words and Sequences for the tokens of a text.
func (t *Tokenizer) addTracked(e, from *Encoding, sequence int, tokens []token) {
	e.Sequences = appendRun(e.Sequences, int32(sequence), len(tokens))
	for i := range tokens {
		span := tokens[i].span
		if len(t.trims) > 0 {
			span = t.trimmed(from, sequence, i, tokens[i])
		}
		e.Offsets, e.Words = append(e.Offsets, span), append(e.Words, tokens[i].word)
	}
}

// trim removes white space at the ends of tokens from their offsets.
type trim struct {
	prefix bool // a single space at the start of the text may come from add_prefix_space
	after  bool // it comes after the special tokens
}

// addTrim appends a trim and counts the white space of each vocabulary entry.
func (t *Tokenizer) addTrim(prefix bool) {
	t.trims = append(t.trims, trim{prefix, t.template != nil})
	if t.spaces != nil {
		return
	}
	for id := range int32(maxID) {
		if id > int32(2*t.model.size()) {
			break
		}
		name, _ := t.model.token(id)
		lead, trail := spacesOf([]byte(name))
		t.spaces = append(t.spaces, [2]int16{lead, trail})
	}
}

// spacesOf counts the white space at the ends of a token, as bytes or as ByteLevel writes spaces.
func spacesOf(b []byte) (lead, trail int16) {
	space := func(r rune) bool { return r == byteChars[' '] || unicode.IsSpace(r) }
	count := func(b []byte) int16 { return int16(min(utf8.RuneCount(b), 1<<14)) }
	return count(b[:len(b)-len(bytes.TrimLeftFunc(b, space))]), count(b[len(bytes.TrimRightFunc(b, space)):])
}

// trimmed returns the span of token i of a sequence without its white space. The counts are code points of the token, applied to the
// source.
func (t *Tokenizer) trimmed(e *Encoding, sequence, i int, x token) Span {
	lead, trail := x.lead, x.trail
	if lead == byID {
		lead, trail = 0, 0
		if int(x.id) < len(t.spaces) {
			lead, trail = t.spaces[x.id][0], t.spaces[x.id][1]
		}
	}
	span, src := x.span, e.sources[sequence]
	if lead == 0 && trail == 0 || int(span.End) > len(src) || span.Start > span.End {
		return span
	}
	for _, c := range t.trims {
		at := i
		if c.after {
			at += t.template.shift[sequence]
		}
		if kept := c.prefix && lead == 1 && (at == 0 || span.Start == 0); !kept {
			span.Start = forward(src, span, int(lead))
		}
		span.End = backward(src, span, int(trail))
	}
	return span
}

// forward returns the position n code points after the start of a span, at most its end.
func forward(src []byte, s Span, n int) int32 {
	for ; n > 0 && s.Start < s.End; n-- {
		s.Start += int32(runeLen(src[s.Start]))
	}
	return min(s.Start, s.End)
}

// backward returns the position n code points before the end of a span, at least its start.
func backward(src []byte, s Span, n int) int32 {
	end := s.End
	for ; n > 0 && end > s.Start; n-- {
		_, size := utf8.DecodeLastRune(src[:end])
		end -= int32(size)
	}
	return max(end, s.Start)
}

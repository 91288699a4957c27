package tokenizer

import (
	"bytes"
	"fmt"
	"slices"
	"unicode"
	"unicode/utf8"
)

// Encoding is the result for one text or pair: slices of equal length, of which Offsets, Words and Sequences are empty unless
// TrackOffsets is set. The zero value is ready to use. Lifecycle: set the options, pass it to Encode, read the slices; pass it to
// Encode again, which reuses its memory and overwrites the slices. It serves one goroutine at a time.
type Encoding struct {
	IDs       []int32 // numbers of the tokens in the vocabulary
	TypeIDs   []int32 // segment ids of the template, for example 0 for the first text and 1 for the second
	Attention []int32 // 1 for tokens and 0 for padding
	Special   []int32 // 1 for special tokens of the template and for padding, 0 for tokens of the text
	Offsets   []Span  // byte ranges of the tokens in their text, {0, 0} for special ones
	Words     []int32 // numbers of the pre-tokenizer's words, from 0 in each text; None for special tokens
	Sequences []int32 // 0 for tokens of the first text and 1 for those of the second; None for special tokens

	// Total is the number of tokens before truncation, special ones included and padding not.
	Total int

	TrackOffsets bool // fills Offsets, Words and Sequences, at some cost
	KeepOverflow bool // fills Overflow
	MaxWindows   int  // most encodings that truncation may cut a text into, Overflow included; 0 is no limit
	// Overflow has the tokens that truncation removed, as encodings that overlap by the stride, in the reference's order. It is
	// valid until the Encoding is used again.
	Overflow []*Encoding

	text    text
	pieces  []word
	seqs    [2][]token
	sources [2][]byte
	windows [2][]Span // the parts that truncation cuts the sequences into; empty without truncation
	spare   []*Encoding
}

// None is the word number and the sequence of special tokens and padding.
const None = -1

// Len returns the number of tokens.
func (e *Encoding) Len() int { return len(e.IDs) }

// TextMemory returns the bytes that e keeps for the normalized text.
func (e *Encoding) TextMemory() int { return cap(e.text.buf) }

// Release drops the references to the texts of the last encoding. The memory for results stays.
func (e *Encoding) Release() { e.sources = [2][]byte{} }

func (e *Encoding) reset() {
	e.IDs, e.TypeIDs, e.Attention, e.Special = e.IDs[:0], e.TypeIDs[:0], e.Attention[:0], e.Special[:0]
	e.Offsets, e.Words, e.Sequences = e.Offsets[:0], e.Words[:0], e.Sequences[:0]
}

// nextOverflow appends an empty encoding to Overflow and returns it.
func (e *Encoding) nextOverflow() *Encoding {
	n := len(e.Overflow)
	if n == len(e.spare) {
		e.spare = append(e.spare, new(Encoding))
	}
	next := e.spare[n]
	next.reset()
	next.TrackOffsets = e.TrackOffsets
	e.Overflow = append(e.Overflow, next)
	return next
}

// add appends one special token.
func (e *Encoding) add(id, typeID, attention int32) {
	e.IDs = append(e.IDs, id)
	e.TypeIDs = append(e.TypeIDs, typeID)
	e.Attention = append(e.Attention, attention)
	e.Special = append(e.Special, 1)
	if e.TrackOffsets {
		e.Offsets, e.Words, e.Sequences = append(e.Offsets, Span{}), append(e.Words, None), append(e.Sequences, None)
	}
}

// addTokens appends tokens of a text, without Offsets, Words and Sequences.
func (e *Encoding) addTokens(tokens []token, typeID int32) {
	e.IDs = slices.Grow(e.IDs, len(tokens))
	for i := range tokens {
		e.IDs = append(e.IDs, tokens[i].id)
	}
	e.TypeIDs = appendRun(e.TypeIDs, typeID, len(tokens))
	e.Attention = appendRun(e.Attention, 1, len(tokens))
	e.Special = appendRun(e.Special, 0, len(tokens))
}

// appendRun appends v n times.
func appendRun(dst []int32, v int32, n int) []int32 {
	dst = slices.Grow(dst, n)
	end := len(dst)
	dst = dst[:end+n]
	for i := range dst[end:] {
		dst[end+i] = v
	}
	return dst
}

// padding is the padding section of a file. An Encoding is padded to fixed tokens, or not when fixed is 0, and then to a multiple.
// For example, multiple 8 pads 11 tokens to 16.
type padding struct {
	fixed, multiple int
	left            bool
	id, typeID      int32
}

// length returns the padded length of n tokens.
func (p *padding) length(n int) int {
	if p.fixed != 0 {
		n = p.fixed
	}
	if p.multiple > 0 && n%p.multiple > 0 {
		n += p.multiple - n%p.multiple
	}
	return n
}

// apply pads e to a length.
func (p *padding) apply(e *Encoding, want int) {
	n := e.Len()
	for e.Len() < want {
		e.add(p.id, p.typeID, 0)
	}
	if p.left && want > n {
		rotate(e.IDs, n)
		rotate(e.TypeIDs, n)
		rotate(e.Attention, n)
		rotate(e.Special, n)
		if e.TrackOffsets {
			rotate(e.Offsets, n)
			rotate(e.Words, n)
			rotate(e.Sequences, n)
		}
	}
}

// rotate moves the first n elements to the end.
func rotate[T any](s []T, n int) {
	slices.Reverse(s[:n])
	slices.Reverse(s[n:])
	slices.Reverse(s)
}

// Truncation is the truncation section of a file.
type Truncation struct {
	MaxLength int    `json:"max_length"`
	Strategy  string `json:"strategy"`
	Direction string `json:"direction"`
	Stride    int    `json:"stride"`
}

// The strategies and the direction as the file writes them.
const (
	longestFirst = "LongestFirst"
	onlyFirst    = "OnlyFirst"
	onlySecond   = "OnlySecond"
	left         = "Left"
	right        = "Right"
)

// lengths returns how many tokens of each sequence stay when there is room for limit tokens.
func (t *Truncation) lengths(n1, n2, limit int, pair bool) (int, int, error) {
	over := n1 + n2 - limit
	switch {
	case over <= 0:
		return n1, n2, nil
	case limit < 0:
		return 0, 0, fmt.Errorf("max_length %d leaves no room for the special tokens of a pair", t.MaxLength)
	case limit == 0:
		return 0, 0, nil
	case t.Strategy == longestFirst && !pair:
		return limit, 0, nil
	case t.Strategy == longestFirst:
		n1, n2 = share(n1, n2, limit)
		return n1, n2, nil
	case t.Strategy == onlyFirst && n1 > over:
		return n1 - over, n2, nil
	case t.Strategy == onlySecond && n2 > over:
		return n1, n2 - over, nil
	case t.Strategy == onlySecond && !pair:
		return 0, 0, fmt.Errorf("the text has %d tokens, over the limit of %d, and strategy 'only_second' needs a pair to truncate", n1, limit)
	default:
		return 0, 0, fmt.Errorf("the pair has %d and %d tokens, over the limit of %d, and the sequence to truncate is too short", n1, n2, limit)
	}
}

// share divides limit between two sequences: the shorter one gets up to half, the other the rest.
func share(n1, n2, limit int) (int, int) {
	short := min(n1, n2, limit/2)
	if n1 > n2 {
		return limit - short, short
	}
	return short, limit - short
}

// windows appends the windows of n tokens, overlapping by the stride, that cover a sequence; none when it is short enough. The first
// one stays, the others overflow. With n of 0 the whole sequence overflows. For example, 5 tokens with n 3 and stride 1 give
// [0,3) and [2,5).
func (t *Truncation) windows(dst []Span, length, n int) ([]Span, error) {
	switch {
	case n >= length:
		return dst, nil
	case n == 0:
		return append(dst, Span{}, Span{0, int32(length)}), nil
	case t.Stride >= n:
		return dst, fmt.Errorf("stride %d of the truncation is not less than the %d tokens that stay of a text", t.Stride, n)
	}
	for at := 0; ; at += n - t.Stride {
		if t.Direction == left {
			end := length - at
			start := max(end-n, 0)
			dst = append(dst, Span{int32(start), int32(end)})
			if start == 0 {
				return dst, nil
			}
			continue
		}
		end := min(at+n, length)
		dst = append(dst, Span{int32(at), int32(end)})
		if end == length {
			return dst, nil
		}
	}
}

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

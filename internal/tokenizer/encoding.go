package tokenizer

import "slices"

// Encoding is the result for one text or pair: slices of equal length, of which Offsets, Words and Sequences are empty unless
// TrackOffsets is set. The zero value is ready to use. Lifecycle: set the options, pass it to Encode, read the slices; pass it to
// Encode again, which reuses its memory and overwrites the slices. It serves one goroutine at a time.
type Encoding struct {
	// IDs are the tokens' numbers in the vocabulary.
	IDs []int32
	// TypeIDs are the segment ids of the template, for example 0 for the first text and 1 for the second.
	TypeIDs []int32
	// Attention is 1 for tokens and 0 for padding.
	Attention []int32
	// Special is 1 for special tokens of the template and for padding, 0 for tokens of the text.
	Special []int32
	// Offsets are byte ranges of the tokens in their text, {0, 0} for special ones.
	Offsets []Span
	// Words are the numbers of the pre-tokenizer's words, from 0 in each text; None for special tokens.
	Words []int32
	// Sequences are 0 for tokens of the first text and 1 for those of the second; None for special tokens.
	Sequences []int32
	// TrackOffsets fills Offsets, Words and Sequences, at some cost.
	TrackOffsets bool
	// KeepOverflow fills Overflow.
	KeepOverflow bool
	// MaxWindows is the largest number of encodings that truncation may cut a text into, Overflow included; 0 is no limit.
	MaxWindows int
	// Overflow has the tokens that truncation removed, as encodings that overlap by the stride, in the reference's order. It is
	// valid until the Encoding is used again.
	Overflow []*Encoding

	text    text
	pieces  []piece
	inner   []piece
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

// moveMain moves the first n encodings, those with the first window of the first text, behind the others.
func (e *Encoding) moveMain(n int) {
	if n > 0 && n < len(e.Overflow) {
		rotate(e.Overflow, n)
	}
	copy(e.spare, e.Overflow)
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

package tokenize

// Encoding is the answer for one text or pair: five slices of one length. The zero value is ready; used again, it
// keeps its memory. It serves one goroutine at a time.
type Encoding struct {
	// IDs are the tokens' numbers in the vocabulary.
	IDs []int32
	// TypeIDs say which of a pair's texts a token belongs to, as the template has it.
	TypeIDs []int32
	// Attention is 1 for tokens and 0 for padding.
	Attention []int32
	// Special is 1 for what the template and the padding added, 0 for tokens of the text.
	Special []int32
	// Offsets are byte ranges of the tokens in their text, {0, 0} for special ones; zero unless TrackOffsets is set.
	Offsets []Span
	// TrackOffsets asks for Offsets, at some cost.
	TrackOffsets bool
	// KeepOverflow asks for Overflow.
	KeepOverflow bool
	// Overflow holds what truncation cut off, as encodings that overlap by the stride, in the reference's order. It is
	// valid until the Encoding is used again.
	Overflow []*Encoding

	text    text
	pieces  []piece
	inner   []piece
	seqs    [2][]token
	sources [2][]byte
	windows [2][]Span // the parts that truncation cuts the sequences into, none when it does not
	spare   []*Encoding
}

// Len is the number of tokens.
func (e *Encoding) Len() int { return len(e.IDs) }

func (e *Encoding) reset() {
	e.IDs, e.TypeIDs, e.Attention, e.Special = e.IDs[:0], e.TypeIDs[:0], e.Attention[:0], e.Special[:0]
	e.Offsets = e.Offsets[:0]
}

// nextOverflow is an empty encoding at the end of Overflow.
func (e *Encoding) nextOverflow() *Encoding {
	n := len(e.Overflow)
	if n == len(e.spare) {
		e.spare = append(e.spare, new(Encoding))
	}
	next := e.spare[n]
	next.reset()
	e.Overflow = append(e.Overflow, next)
	return next
}

// moveMain puts the first n encodings, which have the first text's main part, behind the others.
func (e *Encoding) moveMain(n int) {
	if n > 0 && n < len(e.Overflow) {
		rotate(e.Overflow, n)
	}
	copy(e.spare, e.Overflow)
}

// add appends one token.
func (e *Encoding) add(id, typeID, attention, special int32, at Span) {
	e.IDs = append(e.IDs, id)
	e.TypeIDs = append(e.TypeIDs, typeID)
	e.Attention = append(e.Attention, attention)
	e.Special = append(e.Special, special)
	e.Offsets = append(e.Offsets, at)
}

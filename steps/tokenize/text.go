package tokenize

// Span is a half-open range of bytes in the source text.
type Span struct{ Start, End int32 }

// token is one token of a sequence before the template; span lies in the source when offsets are tracked.
type token struct {
	id   int32
	span Span
}

// text is the working form of one piece between the stages.
type text struct {
	buf   []byte // normalized text
	from  []Span // source range of each byte of buf, when tracked
	track bool
	words []Span // ranges of buf that the model sees one at a time
	marks []mark // combining marks that wait for their order
	order []Span // scratch for the marks' source ranges
	runes []rune // scratch for decompositions
	prev  Span   // source range of the last code point that was not inserted
}

// reset empties the text for a piece that starts at byte base of the source.
func (t *text) reset(base int) {
	t.buf, t.from, t.words, t.marks = t.buf[:0], t.from[:0], t.words[:0], t.marks[:0]
	t.prev = Span{int32(base), int32(base)}
}

// source translates a range of buf to the source.
func (t *text) source(s Span) Span {
	if !t.track || s.Start >= s.End {
		return Span{}
	}
	return Span{t.from[s.Start].Start, t.from[s.End-1].End}
}

// A normalizer appends the normalized form of src, which starts at byte base of the source and is valid UTF-8.
type normalizer interface {
	normalize(t *text, src []byte, base int)
}

// A preTokenizer appends the words of the given range of t.buf to t.words.
type preTokenizer interface {
	split(t *text, in Span)
}

// A model appends the tokens of t.words to dst, with spans in the source.
type model interface {
	tokenize(t *text, dst []token) []token
	// id looks up a token of the vocabulary.
	id(token string) (int32, bool)
	// token is the entry of an id, as the file writes it.
	token(id int32) (string, bool)
}

// verbatim is the normalizer of a file that has none.
type verbatim struct{}

func (verbatim) normalize(t *text, src []byte, base int) {
	t.buf = append(t.buf, src...)
	if !t.track {
		return
	}
	for i := 0; i < len(src); {
		n := runeLen(src[i])
		s := Span{int32(base + i), int32(base + i + n)}
		for range n {
			t.from = append(t.from, s)
		}
		i += n
	}
}

// whole is the pre-tokenizer of a file that has none: the piece is one word.
type whole struct{}

func (whole) split(t *text, in Span) {
	if in.Start < in.End {
		t.words = append(t.words, in)
	}
}

// runeLen is the length of the UTF-8 sequence that starts with b.
func runeLen(b byte) int {
	switch {
	case b < 0xC0:
		return 1
	case b < 0xE0:
		return 2
	case b < 0xF0:
		return 3
	default:
		return 4
	}
}

package tokenizer

import (
	"unicode/utf8"

	"github.com/tutti-server/tutti/internal/tokenizer/onig"
)

// Span is a half-open range of bytes in the source text.
type Span struct{ Start, End int32 }

// token is one token of a sequence before the template. Its span is in the source when offsets are tracked.
type token struct {
	id   int32
	span Span
	// lead and trail count the white space that trimming removes; byID looks them up in the vocabulary.
	lead, trail int16
	word        int32 // its number in the text, when offsets are tracked
}

// byID as the lead of a token looks its white space up in the vocabulary.
const byID = -1

// word is a range of the normalized text that the model tokenizes, or an added token in it.
type word struct {
	at Span
	id int32 // noID for text
}

// tracked is a text with the source range of each byte, when track is set.
type tracked struct {
	buf   []byte
	from  []Span
	track bool
}

// emit appends a code point.
func (x *tracked) emit(r rune, src Span) {
	x.buf = utf8.AppendRune(x.buf, r)
	x.mark(src)
}

// write appends s.
func write[S string | []byte](x *tracked, s S, src Span) {
	x.buf = append(x.buf, s...)
	x.mark(src)
}

// mark sets the source range of the bytes that have none yet.
func (x *tracked) mark(src Span) {
	for x.track && len(x.from) < len(x.buf) {
		x.from = append(x.from, src)
	}
}

// text holds one piece between the stages: the normalized bytes, their source ranges and the words. Stages rewrite buf by writing
// alt and swapping the two.
type text struct {
	tracked // the normalized text

	base  int32  // where the piece starts in the source
	words []word // ranges of buf, in order
	count int32  // words of the text before this piece
	bad   error  // the reason why the text has no tokens

	alt      tracked // the rewritten text
	altWords []word
	matches  []match
	pos      int32  // in buf, while a stage rewrites it code point by code point
	marks    []mark // combining marks that wait for their order
	order    []Span // scratch for the marks' source ranges
	runes    []rune // scratch for decompositions
	prev     Span   // source range of the last code point that was not inserted
	form     formScratch
	bpe      bpeScratch
	lattice  []latticeNode
	score    float32 // the sum up to here; see sentenceScores
	regex    onig.Scratch
	found    [][2]int32
}

// reset empties the text for a piece that starts at byte base of the source.
func (t *text) reset(base int) {
	t.buf, t.from, t.words, t.marks = t.buf[:0], t.from[:0], t.words[:0], t.marks[:0]
	t.base, t.bad, t.score = int32(base), nil, 0
	t.prev = Span{int32(base), int32(base)}
}

// source translates a range of buf to the source. A range outside of buf keeps its numbers, as in the reference.
func (t *text) source(s Span) Span {
	if !t.track {
		return Span{}
	}
	if s.Start >= s.End || int(s.End) > len(t.from) {
		return s
	}
	return Span{t.from[s.Start].Start, t.from[s.End-1].End}
}

// added appends the token of an added token in the text.
func (t *text) added(dst []token, w word) []token {
	t.score = symbolScore(t.score, int(w.at.End-w.at.Start))
	lead, trail := int16(0), int16(0)
	if t.track {
		lead, trail = spacesOf(t.buf[w.at.Start:w.at.End])
	}
	return append(dst, token{id: w.id, span: t.source(w.at), lead: lead, trail: trail})
}

// rewrite starts to rewrite buf, at once or word by word.
func (t *text) rewrite() {
	t.alt.buf, t.alt.from, t.altWords, t.pos = t.alt.buf[:0], t.alt.from[:0], t.altWords[:0], 0
}

// rewriteWords rewrites buf word by word: do writes those that are text.
func (t *text) rewriteWords(do func(at Span)) {
	t.rewrite()
	for _, w := range t.words {
		start := int32(len(t.alt.buf))
		if w.id == noID {
			do(w.at)
		} else {
			t.keep(w.at)
		}
		t.altWords = append(t.altWords, word{Span{start, int32(len(t.alt.buf))}, w.id})
	}
	t.endWords()
}

// endWords replaces buf and the words by the rewritten ones.
func (t *text) endWords() {
	t.swap()
	t.words, t.altWords = t.altWords, t.words
}

// swap replaces buf by the rewritten text. The words stay.
func (t *text) swap() {
	t.tracked, t.alt = t.alt, t.tracked
}

// keep copies a range of buf to the rewritten text.
func (t *text) keep(s Span) {
	t.alt.buf = append(t.alt.buf, t.buf[s.Start:s.End]...)
	if t.track {
		t.alt.from = append(t.alt.from, t.from[s.Start:s.End]...)
	}
}

// at returns the source range of a byte of buf.
func (t *text) at(i int32) Span {
	if !t.track || i < 0 || int(i) >= len(t.from) {
		return Span{t.base, t.base}
	}
	return t.from[i]
}

// begins reports whether a range of buf starts where the source does.
func (t *text) begins(s Span) bool {
	if !t.track {
		return t.base == 0 && s.Start == 0
	}
	return t.at(s.Start).Start == 0
}

// put writes a code point with a change as in the reference's transform: 0 replaces one code point, above 0 is inserted, and -n
// replaces one and removes n more. Its source range follows from that.
func (t *text) put(r rune, change int) {
	src := t.at(t.pos)
	if change > 0 {
		src = t.at(t.pos - 1)
	}
	t.alt.emit(r, src)
	for ; t.track && change <= 0 && int(t.pos) < len(t.buf); change++ {
		t.pos += int32(runeLen(t.buf[t.pos]))
	}
}

// normalizer is the first stage after the added tokens. It appends the normalized form of src to t.buf, with source ranges in
// t.from when t.track is set. src starts at byte base of the source and is valid UTF-8. For example, Lowercase appends "abc" for
// "ABC".
type normalizer interface {
	normalize(t *text, src []byte, base int)
}

// pass is a normalizer that rewrites all of t.buf.
type pass interface{ apply(t *text) }

// preTokenizer cuts t.words into finer ones. It may rewrite t.buf, as ByteLevel does.
type preTokenizer interface{ split(t *text) }

// model turns words into tokens. Implementations never change after loading and are safe for concurrent use; memory of one
// text is in t.
type model interface {
	// tokenize appends the tokens of one word to dst, with spans in the source. It sets t.bad where the word has none.
	tokenize(t *text, w Span, dst []token) []token
	// id looks up a token of the vocabulary.
	id(token string) (int32, bool)
	// token returns the entry of an id, as the file writes it.
	token(id int32) (string, bool)
	// size returns the number of entries.
	size() int
}

// verbatim copies the text: the normalizer of a file without one.
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

// runeLen returns the length of the UTF-8 sequence that starts with b.
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

// decodeRune returns the first code point of b, which must be valid UTF-8 and not empty.
func decodeRune(b []byte) (rune, int32) {
	if b[0] < utf8.RuneSelf {
		return rune(b[0]), 1
	}
	r, n := utf8.DecodeRune(b)
	return r, int32(n)
}

// IsASCII reports whether all bytes of b are ASCII.
func IsASCII(b []byte) bool {
	for _, c := range b {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

package tokenizer

import (
	"bytes"
	"slices"
	"unicode/utf8"
)

// metaspace is Metaspace: spaces become a visible character, which begins the words.
type metaspace struct {
	replacement string
	always      bool // put the replacement before every word
	first       bool // or before the one at the start of the text
	cut         bool // end words before the replacement
}

func (m *metaspace) split(t *text) {
	t.rewrite()
	for _, w := range t.words {
		start := int32(len(t.alt.buf))
		if w.id != noID {
			t.keep(w.at)
			t.altWords = append(t.altWords, word{Span{start, int32(len(t.alt.buf))}, w.id})
			continue
		}
		m.rewrite(t, w.at)
		m.words(t, start)
	}
	t.endWords()
}

// rewrite appends one word with its spaces replaced.
func (m *metaspace) rewrite(t *text, at Span) {
	b := t.buf[at.Start:at.End]
	if m.always || m.first && t.begins(at) {
		if b[0] != ' ' && !bytes.HasPrefix(b, []byte(m.replacement)) {
			write(&t.alt, m.replacement, t.at(at.Start))
		}
	}
	for i := at.Start; i < at.End; {
		n := bytes.IndexByte(t.buf[i:at.End], ' ')
		if n < 0 {
			t.keep(Span{i, at.End})
			return
		}
		t.keep(Span{i, i + int32(n)})
		i += int32(n)
		write(&t.alt, m.replacement, t.at(i))
		i++
	}
}

// words cuts the text appended from start on before each replacement.
func (m *metaspace) words(t *text, start int32) {
	end := int32(len(t.alt.buf))
	if m.cut {
		from := start
		for i := start; i < end; i += int32(len(m.replacement)) {
			n := bytes.Index(t.alt.buf[i:end], []byte(m.replacement))
			if n < 0 {
				break
			}
			i += int32(n)
			if from < i {
				t.altWords = append(t.altWords, word{Span{from, i}, noID})
			}
			from = i
		}
		start = from
	}
	if start < end {
		t.altWords = append(t.altWords, word{Span{start, end}, noID})
	}
}

// byteLevel is ByteLevel: it writes bytes as printable characters. Before a model that reads bytes (raw) the bytes stay.
type byteLevel struct {
	prefix  bool    // put a space before a word that begins with none
	pattern pattern // nil leaves words whole
	raw     bool
}

func (p *byteLevel) split(t *text) {
	if p.prefix && slices.ContainsFunc(t.words, func(w word) bool { return w.id == noID && t.buf[w.at.Start] != ' ' }) {
		t.rewriteWords(func(at Span) {
			if t.buf[at.Start] != ' ' {
				write(&t.alt, " ", t.at(at.Start))
			}
			t.keep(at)
		})
	}
	if p.pattern != nil {
		(&split{pattern: p.pattern, behavior: isolated}).split(t)
	}
	if !p.raw {
		t.rewriteWords(t.putBytes)
	}
}

// gpt2Pattern is gpt2Text. Every code point is in a match.
type gpt2Pattern struct{ letters letterTable }

func (p gpt2Pattern) matches(dst []match, _ *text, b []byte) []match {
	for i := int32(0); int(i) < len(b); {
		start := i
		if b[i] == '\'' {
			if n := contraction(b[i:], 0); n > 0 {
				i += n
				dst = append(dst, match{start, i, true})
				continue
			}
		}
		at := i
		if b[at] == ' ' && int(at)+1 < len(b) {
			at++
		}
		r, n := decodeRune(b[at:])
		if class := p.letters.class(r); class != letterSpace {
			i = p.letters.run(b, at+n, class)
		} else {
			i = p.letters.spaces(b, start)
		}
		dst = append(dst, match{start, i, true})
	}
	return dst
}

// contraction returns the length of the English contraction at the start of b, or 0. With a fold of 0x20, letters have either case,
// and one of them is the long s (U+017F).
func contraction(b []byte, fold byte) int32 {
	if len(b) < 2 {
		return 0
	}
	x := b[1] | fold
	switch x {
	case 's', 't', 'm', 'd':
		return 2
	}
	if len(b) < 3 {
		return 0
	}
	y := b[2] | fold
	if x == 'r' && y == 'e' || x == 'v' && y == 'e' || x == 'l' && y == 'l' || fold != 0 && b[1] == 0xC5 && b[2] == 0xBF {
		return 3
	}
	return 0
}

// The classes of code points for the byte-level patterns.
const (
	letterOther = iota
	letterSpace
	letterLetter
	letterNumber
)

// letterTable classifies code points as letters, numbers, white space or others, as Oniguruma does.
type letterTable struct{ *classifier }

func newLetterTable() letterTable { return letterTable{newClassifier(letterClass)} }

func letterClass(r rune) int32 {
	switch c := classes(); {
	case c.space.Has(r):
		return letterSpace
	case c.letter.Has(r):
		return letterLetter
	case c.number.Has(r):
		return letterNumber
	default:
		return letterOther
	}
}

// run returns the end of the code points of a class from i on.
func (t letterTable) run(b []byte, i, class int32) int32 {
	for int(i) < len(b) {
		if c := b[i]; c < utf8.RuneSelf {
			if int32(t.ascii[c]) != class {
				return i
			}
			i++
			continue
		}
		r, n := decodeRune(b[i:])
		if t.class(r) != class {
			return i
		}
		i += n
	}
	return i
}

// spaces returns the end of \s+(?!\S)|\s+: white space, without its last code point when a word follows.
func (t letterTable) spaces(b []byte, start int32) int32 {
	last, i := start, start
	for int(i) < len(b) {
		r, n := decodeRune(b[i:])
		if t.class(r) != letterSpace {
			break
		}
		last, i = i, i+n
	}
	if int(i) < len(b) && last > start {
		return last
	}
	return i
}

// The patterns that are matched by hand: of GPT-2 and ByteLevel, of Llama 3, and of Qwen.
const (
	gpt2Text  = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	llamaText = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	qwenText  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// llamaPattern is llamaText or, with digits 1, qwenText. It matches every code point, so each match is a hit.
type llamaPattern struct {
	letters letterTable
	digits  int
}

func (p llamaPattern) matches(dst []match, _ *text, b []byte) []match {
	for i := int32(0); int(i) < len(b); {
		start := i
		i = p.next(b, i)
		dst = append(dst, match{start, i, true})
	}
	return dst
}

// next returns the end of the match that starts at i.
func (p llamaPattern) next(b []byte, i int32) int32 {
	r, n := decodeRune(b[i:])
	if r == '\'' {
		if size := contraction(b[i:], 0x20); size > 0 {
			return i + size
		}
	}
	class := p.letters.class(r)
	switch class {
	case letterLetter:
		return p.letters.run(b, i+n, letterLetter)
	case letterNumber:
		return p.number(b, i+n)
	}
	if r != '\r' && r != '\n' && int(i+n) < len(b) {
		if second, size := decodeRune(b[i+n:]); p.letters.class(second) == letterLetter {
			return p.letters.run(b, i+n+size, letterLetter)
		}
	}
	return p.other(b, i, r, class)
}

func (p llamaPattern) number(b []byte, i int32) int32 {
	for k := 1; k < p.digits && int(i) < len(b); k++ {
		r, n := decodeRune(b[i:])
		if p.letters.class(r) != letterNumber {
			break
		}
		i += n
	}
	return i
}

// other matches from " ?[^\s\p{L}\p{N}]+[\r\n]*" on.
func (p llamaPattern) other(b []byte, i int32, r rune, class int32) int32 {
	at := i
	if r == ' ' && int(i)+1 < len(b) {
		second, _ := decodeRune(b[i+1:])
		class = p.letters.class(second)
		at++
	}
	if class == letterOther {
		end := p.letters.run(b, at, letterOther)
		for int(end) < len(b) && (b[end] == '\r' || b[end] == '\n') {
			end++
		}
		return end
	}
	return p.space(b, i)
}

// space matches "\s*[\r\n]+" where the white space has a line end, and the rules of spaces where it has none.
func (p llamaPattern) space(b []byte, start int32) int32 {
	line := start
	for i := start; int(i) < len(b); {
		r, n := decodeRune(b[i:])
		if p.letters.class(r) != letterSpace {
			break
		}
		i += n
		if r == '\r' || r == '\n' {
			line = i
		}
	}
	if line > start {
		return line
	}
	return p.letters.spaces(b, start)
}

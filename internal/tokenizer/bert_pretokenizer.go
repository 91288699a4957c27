package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// The classes of code points for the BERT pre-tokenizer.
const (
	inWord = iota
	separator
	ownWord
)

// bertPreTokenizer is BertPreTokenizer: words end at white space, and each punctuation mark is a word.
type bertPreTokenizer struct {
	ascii [utf8.RuneSelf]uint8
	table *runeTable
}

func newBertPreTokenizer() *bertPreTokenizer {
	p := &bertPreTokenizer{table: newRuneTable(wordClass)}
	for r := range rune(utf8.RuneSelf) {
		p.ascii[r] = uint8(wordClass(r))
	}
	return p
}

func wordClass(r rune) int32 {
	switch {
	case unicode.Is(unicode.White_Space, r):
		return separator
	case classes().punctuation.Has(r):
		return ownWord
	default:
		return inWord
	}
}

func (p *bertPreTokenizer) split(t *text) {
	words := t.altWords[:0]
	for _, w := range t.words {
		if w.id != noID {
			words = append(words, w)
			continue
		}
		words = p.cut(words, t.buf, w.at)
	}
	t.words, t.altWords = words, t.words
}

// cut appends the words of one range of buf.
func (p *bertPreTokenizer) cut(words []word, buf []byte, in Span) []word {
	start := in.Start
	for i := in.Start; i < in.End; {
		class, size := p.next(buf[i:in.End])
		if class == inWord {
			i += size
			continue
		}
		if start < i {
			words = append(words, word{Span{start, i}, noID})
		}
		if class == ownWord {
			words = append(words, word{Span{i, i + size}, noID})
		}
		i += size
		start = i
	}
	if start < in.End {
		words = append(words, word{Span{start, in.End}, noID})
	}
	return words
}

// next returns the class and the length of the first code point of b.
func (p *bertPreTokenizer) next(b []byte) (class, size int32) {
	if b[0] < utf8.RuneSelf {
		return int32(p.ascii[b[0]]), 1
	}
	r, n := utf8.DecodeRune(b)
	class, ok := p.table.at(r)
	if !ok {
		class = wordClass(r)
	}
	return class, int32(n)
}

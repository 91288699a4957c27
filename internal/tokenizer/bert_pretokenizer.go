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
type bertPreTokenizer struct{ classifier }

func newBertPreTokenizer() *bertPreTokenizer { return &bertPreTokenizer{*newClassifier(wordClass)} }

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
		var class int32
		size := int32(1)
		if c := buf[i]; c < utf8.RuneSelf {
			class = int32(p.ascii[c])
		} else {
			class, size = p.next(buf[i:in.End])
		}
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

package tokenizer

import (
	"bytes"
	"slices"
	"unicode"

	"github.com/tutti-server/tutti/internal/tokenizer/onig"
)

// match is a part of a text: a match of a pattern (hit), or the text between matches.
type match struct {
	start, end int32
	hit        bool
}

// pattern cuts a text into parts. matches appends them to dst in order; together they are all of b.
type pattern interface {
	matches(dst []match, t *text, b []byte) []match
}

// The behaviors of Split for the parts that match.
const (
	removed            = "Removed"
	isolated           = "Isolated"
	mergedWithPrevious = "MergedWithPrevious"
	mergedWithNext     = "MergedWithNext"
	contiguous         = "Contiguous"
)

// split is Split, and the pre-tokenizers that are special cases of it, such as Punctuation and Digits.
type split struct {
	pattern  pattern
	behavior string
	invert   bool
}

func (s *split) split(t *text) {
	t.altWords = t.altWords[:0]
	for _, w := range t.words {
		if w.id != noID {
			t.altWords = append(t.altWords, w)
			continue
		}
		t.matches = s.pattern.matches(t.matches[:0], t, t.buf[w.at.Start:w.at.End])
		if s.invert {
			for i := range t.matches {
				t.matches[i].hit = !t.matches[i].hit
			}
		}
		t.cut(w.at.Start, s.behavior)
	}
	t.words, t.altWords = t.altWords, t.words
}

// cut appends words for the matches of a word that starts at base.
func (t *text) cut(base int32, behavior string) {
	m := t.matches
	switch behavior {
	case mergedWithPrevious:
		m = merge(m, func(was, is bool) bool { return is && !was })
	case contiguous:
		m = merge(m, func(was, is bool) bool { return is == was })
	case mergedWithNext:
		m = mergeNext(m)
	}
	for _, p := range m {
		if p.start < p.end && (behavior != removed || !p.hit) {
			t.altWords = append(t.altWords, word{Span{base + p.start, base + p.end}, noID})
		}
	}
}

// merge joins a part to the one before it when join says so for their hits.
func merge(m []match, join func(was, is bool) bool) []match {
	out, was := m[:0], false
	for _, p := range m {
		if join(was, p.hit) && len(out) > 0 {
			out[len(out)-1].end = p.end
		} else {
			out = append(out, p)
		}
		was = p.hit
	}
	return out
}

// mergeNext joins each hit to the part after it, from the end on.
func mergeNext(m []match) []match {
	out, was := len(m), false
	for _, p := range slices.Backward(m) {
		if p.hit && !was && out < len(m) {
			m[out].start = p.start
		} else {
			out--
			m[out] = p
		}
		was = p.hit
	}
	return m[out:]
}

// appendGap appends the text between the last match and the next one.
func appendGap(dst []match, next int32) []match {
	last := int32(0)
	if len(dst) > 0 {
		last = dst[len(dst)-1].end
	}
	if last < next {
		dst = append(dst, match{last, next, false})
	}
	return dst
}

// classPattern matches single code points of class 1.
type classPattern struct{ *classifier }

func newClassPattern(of func(rune) bool) classPattern {
	return classPattern{newClassifier(func(r rune) int32 {
		if of(r) {
			return 1
		}
		return 0
	})}
}

func (p classPattern) matches(dst []match, _ *text, b []byte) []match {
	for i := int32(0); int(i) < len(b); {
		class, n := p.next(b[i:])
		if class == 1 {
			dst = append(appendGap(dst, i), match{i, i + n, true})
		}
		i += n
	}
	return appendGap(dst, int32(len(b)))
}

// literal matches a string. The empty one matches nothing.
type literal []byte

func (p literal) matches(dst []match, _ *text, b []byte) []match {
	for last := 0; len(p) > 0; {
		i := bytes.Index(b[last:], p)
		if i < 0 {
			break
		}
		start := int32(last + i)
		last += i + len(p)
		dst = append(appendGap(dst, start), match{start, int32(last), true})
	}
	return appendGap(dst, int32(len(b)))
}

// expression matches a regular expression.
type expression struct{ compiled *onig.Pattern }

func compiled(s string) (pattern, error) {
	p, err := onig.Compile(s)
	if err != nil {
		return nil, err
	}
	return expression{p}, nil
}

func (p expression) matches(dst []match, t *text, b []byte) []match {
	var err error
	if t.found, err = p.compiled.Matches(&t.regex, b, t.found[:0]); err != nil {
		t.bad = err
	}
	for _, m := range t.found {
		dst = append(appendGap(dst, m[0]), match{m[0], m[1], true})
	}
	return appendGap(dst, int32(len(b)))
}

// wordPattern matches runs of word characters, and runs of other characters than those and white space, as Whitespace does.
type wordPattern struct{ *classifier }

const (
	classOther = iota
	classSpace
	classWord
)

func newWordPattern() wordPattern { return wordPattern{newClassifier(wordClassOf)} }

func wordClassOf(r rune) int32 {
	switch {
	case unicode.IsSpace(r):
		return classSpace
	case classes().word.Has(r):
		return classWord
	default:
		return classOther
	}
}

func (p wordPattern) matches(dst []match, _ *text, b []byte) []match {
	for i := int32(0); int(i) < len(b); {
		start := i
		class, n := p.next(b[i:])
		for i += n; int(i) < len(b); i += n {
			var following int32
			if following, n = p.next(b[i:]); following != class {
				break
			}
		}
		dst = append(dst, match{start, i, class != classSpace})
	}
	return dst
}

// scriptOf returns the number of a code point's script, 0 for none.
func scriptOf(r rune) int32 {
	list := classes().scripts
	i, _ := slices.BinarySearchFunc(list, r, func(e scriptRange, r rune) int { return int(e.Hi - r) })
	if i == len(list) || r < list[i].Lo {
		return 0
	}
	return list[i].script
}

// scriptPattern matches runs of one script. Code points without a script belong to the run before them.
type scriptPattern struct{ *classifier }

func (p scriptPattern) matches(dst []match, _ *text, b []byte) []match {
	last, start, begun := int32(0), int32(0), false
	for i := int32(0); int(i) < len(b); {
		script, n := p.next(b[i:])
		if script != 0 && script != last {
			if begun {
				dst = append(dst, match{start, i, true})
			}
			begun, start, last = true, i, script
		}
		i += n
	}
	if begun {
		dst = append(dst, match{start, int32(len(b)), true})
	}
	return dst
}

// lengthPattern matches runs of that many code points.
type lengthPattern int

func (p lengthPattern) matches(dst []match, _ *text, b []byte) []match {
	start, left := int32(0), int(p)
	for i := int32(0); int(i) < len(b); {
		i += int32(runeLen(b[i]))
		if left--; left == 0 || int(i) == len(b) {
			dst = append(dst, match{start, i, true})
			start, left = i, int(p)
		}
	}
	return dst
}

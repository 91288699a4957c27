package tokenizer

import (
	"bytes"
	"unicode"
)

// mapping is a pass that replaces each code point by another, or removes it (drop).
type mapping func(r rune) rune

// drop is the result of a mapping for a code point to remove.
const drop = -1

func (m mapping) apply(t *text) {
	t.rewrite()
	for i := int32(0); int(i) < len(t.buf); {
		r, n := decodeRune(t.buf[i:])
		if out := m(r); out != drop {
			t.alt.emit(out, t.at(i))
		}
		i += n
	}
	t.swap()
}

// lowercase is Lowercase.
type lowercase struct{}

func (lowercase) apply(t *text) {
	if IsASCII(t.buf) {
		for i, c := range t.buf {
			if 'A' <= c && c <= 'Z' {
				t.buf[i] = c + ('a' - 'A')
			}
		}
		return
	}
	t.rewrite()
	for i := int32(0); int(i) < len(t.buf); {
		r, n := decodeRune(t.buf[i:])
		t.put(lowerRune(r), 0)
		if r == upperDottedI {
			t.put(dotAbove, 1)
		}
		i += n
	}
	t.swap()
}

// ideographs puts spaces around CJK ideographs, as BertNormalizer does.
type ideographs struct{}

func (ideographs) apply(t *text) {
	if IsASCII(t.buf) {
		return
	}
	t.rewrite()
	for i := int32(0); int(i) < len(t.buf); {
		r, n := decodeRune(t.buf[i:])
		i += n
		if !isIdeograph(r) {
			t.put(r, 0)
			continue
		}
		t.put(' ', 0)
		t.put(r, 1)
		t.put(' ', 1)
	}
	t.swap()
}

// stripAccents is StripAccents.
func stripAccents(r rune) rune {
	if r >= 0x300 && classes().accent.Has(r) {
		return drop
	}
	return r
}

// dropNonSpacing is the accent stripping of BertNormalizer, after the decomposition.
func dropNonSpacing(r rune) rune {
	if r >= 0x300 && classes().mark.Has(r) {
		return drop
	}
	return r
}

// cleanText is the clean_text of BertNormalizer.
func cleanText(r rune) rune {
	switch {
	case classes().control.Has(r):
		return drop
	case unicode.IsSpace(r):
		return ' '
	default:
		return r
	}
}

// nmt is Nmt.
func nmt(r rune) rune {
	switch {
	case r == 9, r == 10, r == 12, r == 13, r == 0x1680, r >= 0x200B && r <= 0x200F, r == 0x2028, r == 0x2029,
		r == 0x2581, r == 0xFEFF, r == 0xFFFD:
		return ' '
	case r >= 1 && r <= 0x1F, r == 0x7F, r == 0x8F, r == 0x9F:
		return drop
	default:
		return r
	}
}

// strip is Strip: it removes white space at the ends.
type strip struct {
	Left  bool `json:"strip_left"`
	Right bool `json:"strip_right"`
}

func (s *strip) apply(t *text) {
	start, end := 0, len(t.buf)
	if s.Left {
		start = spaceEnd(t.buf, 0)
	}
	if s.Right {
		end = spaceStart(t.buf, start, end)
	}
	t.buf = append(t.buf[:0], t.buf[start:end]...)
	if t.track {
		t.from = append(t.from[:0], t.from[start:end]...)
	}
}

// prepend is Prepend.
type prepend struct {
	Prepend string `json:"prepend"`
}

func (p *prepend) apply(t *text) {
	if len(t.buf) == 0 || p.Prepend == "" {
		return
	}
	t.rewrite()
	write(&t.alt, p.Prepend, t.at(0))
	t.keep(Span{0, int32(len(t.buf))})
	t.swap()
}

// replace is Replace.
type replace struct {
	pattern pattern
	content string
}

func (p *replace) apply(t *text) {
	if l, ok := p.pattern.(literal); ok && !bytes.Contains(t.buf, l) {
		return
	}
	t.matches = p.pattern.matches(t.matches[:0], t, t.buf)
	t.rewrite()
	for _, m := range t.matches {
		if m.hit {
			write(&t.alt, p.content, t.at(m.end-1))
			continue
		}
		t.keep(Span{m.start, m.end})
	}
	t.swap()
}

// byteChars maps bytes to the characters that ByteLevel writes for them. For example, a space is Ġ.
var byteChars = makeByteChars()

func makeByteChars() (out [256]rune) {
	next := rune(256)
	for b := range rune(256) {
		if b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE {
			out[b] = b
			continue
		}
		out[b] = next
		next++
	}
	return out
}

// bytesOfChars is the inverse of byteChars, -1 for characters that stand for no byte.
var bytesOfChars = makeBytesOfChars()

func makeBytesOfChars() (out [0x144]int16) {
	for i := range out {
		out[i] = -1
	}
	for b, r := range byteChars {
		out[r] = int16(b)
	}
	return out
}

// byteOf returns the byte that a character of ByteLevel stands for, negative for none.
func byteOf(r rune) int16 {
	if int(r) >= len(bytesOfChars) {
		return -1
	}
	return bytesOfChars[r]
}

// byteLevelPass writes the bytes of the text as ByteLevel's characters.
type byteLevelPass struct{}

func (byteLevelPass) apply(t *text) {
	t.rewrite()
	t.putBytes(Span{0, int32(len(t.buf))})
	t.swap()
}

// putBytes writes the bytes of a range of buf as ByteLevel's characters to the rewritten text.
func (t *text) putBytes(s Span) {
	for i := s.Start; i < s.End; i++ {
		t.alt.emit(byteChars[t.buf[i]], t.at(i))
	}
}

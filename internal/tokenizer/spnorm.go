package tokenizer

import "bytes"

// sentenceNormalizer is the normalizer of the sentencepiece library: the longest entry of the characters map at each
// place, white space in runs and at the ends taken away, a space put in front, and spaces written as a mark. It stands
// before the added tokens, so that a text is one piece.
type sentenceNormalizer struct {
	charsmap      *precompiled // nil for none
	symbols       *trie        // kept as they are; nil for none
	dummy, remove bool
	space         string
}

func (s *sentenceNormalizer) normalize(t *text, src []byte, base int) {
	at := 0
	if s.remove {
		for at < len(src) {
			out, n := s.prefix(src[at:])
			if string(out) != " " {
				break
			}
			at += n
		}
	}
	if at == len(src) {
		return
	}
	if s.dummy {
		t.write([]byte(s.space), Span{int32(base + at), int32(base + at)})
	}
	spaced := s.remove
	for at < len(src) {
		out, n := s.prefix(src[at:])
		for spaced && len(out) > 0 && out[0] == ' ' {
			out = out[1:]
		}
		if len(out) > 0 {
			s.escape(t, out, Span{int32(base + at), int32(base + at + n)})
			spaced = s.remove && out[len(out)-1] == ' '
		}
		at += n
	}
	if s.remove {
		s.trim(t)
	}
}

// prefix is what the start of b, of n bytes, becomes.
func (s *sentenceNormalizer) prefix(b []byte) (out []byte, n int) {
	if s.symbols != nil {
		if _, n := s.symbols.longest(rootNode, b); n > 0 {
			return b[:n], n
		}
	}
	if s.charsmap != nil {
		if out, n := s.charsmap.longest(b); n > 0 {
			return out, n
		}
	}
	n = runeLen(b[0])
	return b[:n], n
}

// escape writes out with spaces as marks.
func (s *sentenceNormalizer) escape(t *text, out []byte, from Span) {
	for i, c := range out {
		if c == ' ' {
			t.write([]byte(s.space), from)
			continue
		}
		t.write(out[i:i+1], from)
	}
}

// trim takes spaces off the end.
func (s *sentenceNormalizer) trim(t *text) {
	for hasSuffix(t.buf, s.space) {
		t.buf = t.buf[:len(t.buf)-len(s.space)]
		if t.track {
			t.from = t.from[:len(t.buf)]
		}
	}
}

func hasSuffix(b []byte, suffix string) bool {
	return len(b) >= len(suffix) && string(b[len(b)-len(suffix):]) == suffix
}

// write appends out, each byte with the source range.
func (t *text) write(out []byte, from Span) {
	t.buf = append(t.buf, out...)
	if !t.track {
		return
	}
	for range out {
		t.from = append(t.from, from)
	}
}

// longest is the text of the longest entry that b begins with, and the entry's length; 0 for none.
func (p *precompiled) longest(b []byte) (text []byte, size int) {
	at := offsetOf(p.units[0])
	for i, c := range b {
		next, leaf, ok := p.step(at, c)
		if !ok {
			break
		}
		if at = next; !leaf || uint64(at) >= uint64(len(p.units)) {
			continue
		}
		start := p.units[at] & (1<<31 - 1)
		if uint64(start) > uint64(len(p.texts)) {
			break
		}
		end := bytes.IndexByte(p.texts[start:], 0)
		if end < 0 {
			break
		}
		text, size = p.texts[start:int(start)+end], i+1
	}
	return text, size
}

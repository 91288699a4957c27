package tokenizer

import "bytes"

// sentenceNormalizer is the normalizer of the sentencepiece library. At each position it applies the longest entry of the character
// map; it joins runs of spaces, removes those at the ends, puts a space in front, and writes spaces as a mark. For example,
// " Hello  world" becomes "▁Hello▁world". The whole text is one piece.
type sentenceNormalizer struct {
	charsmap      *precompiled // nil for none
	symbols       *trie        // the user's symbols, which are not normalized; nil for none
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

// prefix returns the normalized form of the first n bytes of b.
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

// trim removes spaces at the end.
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

// longest returns the replacement of the longest entry that b begins with, and the entry's length, 0 for none.
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

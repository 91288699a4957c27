package tokenizer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"unicode/utf8"
)

// precompiled is Precompiled: the character map of a sentencepiece model. A double-array trie in the layout of darts-clone maps byte
// strings to their replacements.
type precompiled struct {
	units []uint32
	texts []byte // each ends with a zero
	maps  [256]bool
}

// longestGrapheme is the longest grapheme cluster in bytes that the reference looks up as one string.
const longestGrapheme = 5

func newPrecompiled(data []byte) (*precompiled, error) {
	if len(data) < 4 {
		return nil, errors.New("precompiled_charsmap is shorter than its header")
	}
	size := binary.LittleEndian.Uint32(data)
	if data = data[4:]; uint64(size) > uint64(len(data)) || size < 4 {
		return nil, errors.New("precompiled_charsmap is shorter than its trie")
	}
	p := &precompiled{units: make([]uint32, size/4), texts: data[size/4*4:]}
	for i := range p.units {
		p.units[i] = binary.LittleEndian.Uint32(data[4*i:])
	}
	if !utf8.Valid(p.texts) {
		return nil, errors.New("precompiled_charsmap has texts that are not valid UTF-8")
	}
	for c := range p.maps {
		_, _, p.maps[c] = p.step(uint32(0)^offsetOf(p.units[0]), byte(c))
	}
	return p, nil
}

func offsetOf(unit uint32) uint32 { return (unit >> 10) << ((unit & (1 << 9)) >> 6) }

// step follows byte c from a node. It returns the next node and whether an entry ends there.
func (p *precompiled) step(at uint32, c byte) (next uint32, leaf, ok bool) {
	at ^= uint32(c)
	if c == 0 || uint64(at) >= uint64(len(p.units)) {
		return 0, false, false
	}
	unit := p.units[at]
	if unit&(1<<31|0xFF) != uint32(c) {
		return 0, false, false
	}
	return at ^ offsetOf(unit), unit>>8&1 == 1, true
}

// find returns the replacement of the shortest entry that b begins with.
func (p *precompiled) find(b []byte) ([]byte, bool) {
	if !p.maps[b[0]] {
		return nil, false
	}
	at := offsetOf(p.units[0])
	for _, c := range b {
		next, leaf, ok := p.step(at, c)
		if !ok {
			return nil, false
		}
		at = next
		if !leaf || uint64(at) >= uint64(len(p.units)) {
			continue
		}
		start := p.units[at] & (1<<31 - 1)
		if uint64(start) > uint64(len(p.texts)) {
			return nil, false
		}
		end := start
		for int(end) < len(p.texts) && p.texts[end] != 0 {
			end++
		}
		return p.texts[start:end], utf8.Valid(p.texts[start:end])
	}
	return nil, false
}

// held is a change that waits for the next one: removals are added to the change before them.
type held struct {
	r      rune
	change int
	full   bool
}

func (h *held) put(t *text, r rune, change int) {
	h.flush(t)
	h.r, h.change, h.full = r, change, true
}

func (h *held) flush(t *text) {
	if h.full {
		t.put(h.r, h.change)
	}
	h.full = false
}

func (p *precompiled) apply(t *text) {
	if !slices.ContainsFunc(t.buf, func(c byte) bool { return p.maps[c] }) {
		return // as in most texts, no byte begins an entry
	}
	var h held
	t.rewrite()
	for i := 0; i < len(t.buf); {
		n := grapheme(t.buf[i:])
		if n <= longestGrapheme {
			if s, ok := p.find(t.buf[i : i+n]); ok {
				h.replace(t, t.buf[i:i+n], s)
				i += n
				continue
			}
		}
		for end := i + n; i < end; {
			size := runeLen(t.buf[i])
			if s, ok := p.find(t.buf[i : i+size]); ok {
				h.replace(t, t.buf[i:i+size], s)
			} else {
				r, _ := decodeRune(t.buf[i:])
				h.put(t, r, 0)
			}
			i += size
		}
	}
	h.flush(t)
	t.swap()
}

// replace writes s instead of old. Further code points count as inserted; missing ones as removed by the last code point that was
// written, as in the reference.
func (h *held) replace(t *text, old, s []byte) {
	olds, news := runeCount(old), runeCount(s)
	for i := 0; len(s) > 0; i++ {
		r, n := decodeRune(s)
		change := 0
		if i >= olds {
			change = 1
		}
		h.put(t, r, change)
		s = s[n:]
	}
	if news < olds && h.full {
		h.change += news - olds
	}
}

// grapheme returns the length of the first grapheme cluster of b. It is exact for clusters of up to longestGrapheme bytes.
func grapheme(b []byte) int {
	r, size := decodeRune(b)
	n := int(size)
	if n < len(b) && r < 0x300 && b[n] < utf8.RuneSelf {
		if r == '\r' && b[n] == '\n' {
			return 2
		}
		return n
	}
	if isControl(r) {
		return n
	}
	for classes().prepend.Has(r) && n < len(b) {
		next, size := decodeRune(b[n:])
		if isControl(next) {
			return n
		}
		r = next
		n += int(size)
	}
	return joined(b, n, r)
}

// joined returns the end of a cluster from its first n bytes, of which r is the last code point.
func joined(b []byte, n int, r rune) int {
	picture := r == 0xA9 || classes().pictograph.Has(r)
	for n < len(b) {
		next, size := decodeRune(b[n:])
		switch {
		case next >= 0x300 && classes().joining.Has(next):
		case picture && r == 0x200D && classes().pictograph.Has(next):
		case r >= jamoL && r < jamoV && next >= jamoL && next < hangulEnd && (next < jamoT || next >= hangulBase):
		default:
			return n
		}
		r = next
		n += int(size)
	}
	return n
}

// isControl reports whether r stands alone as a grapheme cluster.
func isControl(r rune) bool {
	return r < 0x20 || r >= 0x7F && r < 0xA0 || r == 0xAD || r == 0x61C || r == 0x180E || r >= 0x200B && r <= 0x200F &&
		r != 0x200C && r != 0x200D || r >= 0x2028 && r <= 0x202E || r >= 0x2060 && r <= 0x206F || r == 0xFEFF ||
		r >= 0xFFF0 && r <= 0xFFFB || r >= 0x13430 && r <= 0x1343F || r >= 0x1BCA0 && r <= 0x1BCA3 ||
		r >= 0x1D173 && r <= 0x1D17A || r >= 0xE0000 && r <= 0xE0FFF && (r < 0xE0020 || r > 0xE007F) && (r < 0xE0100 || r > 0xE01EF)
}

// sentenceNormalizer is the normalizer of the sentencepiece library. At each position it applies the longest entry of the character
// map; it joins runs of spaces, removes those at the ends, puts a space in front, and writes spaces as a mark. For example,
// " Hello  world" becomes "▁Hello▁world". The whole text is one piece.
type sentenceNormalizer struct {
	charsmap      *precompiled // nil for none
	symbols       *trie        // the user's symbols, which are not normalized; nil for none
	dummy, remove bool
	space         []byte
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
		write(&t.tracked, s.space, Span{int32(base + at), int32(base + at)})
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
	for s.remove && bytes.HasSuffix(t.buf, s.space) {
		t.buf = t.buf[:len(t.buf)-len(s.space)]
		if t.track {
			t.from = t.from[:len(t.buf)]
		}
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
			write(&t.tracked, s.space, from)
			continue
		}
		write(&t.tracked, out[i:i+1], from)
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

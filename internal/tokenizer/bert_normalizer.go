package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// The kinds of code points for the BERT normalizer, in the low bits of a table entry. The rest of an entry is the distance from the
// code point to its replacement, unless the kind says otherwise.
const (
	keepPlain   = iota // replaced by one code point
	dropControl        // removed first, without a trace
	dropMark           // removed after decomposition; like any starter, it ends a run of marks
	spaceAround        // a CJK ideograph, a word by itself
	combining          // a mark; the rest of the entry is its class and markGone
	hangul             // a syllable: two or three jamo
	composed           // any other decomposition
	kindBits    = 3
	markGone    = 1 << 8
)

// bertNormalizer is BertNormalizer: clean-up, spaces around CJK ideographs, accent stripping (canonical decomposition
// without non-spacing marks) and lower case, in this order and in one pass.
type bertNormalizer struct {
	clean, cjk, strip, lower bool
	ascii                    [utf8.RuneSelf]int16 // the byte that an ASCII byte becomes, -1 for none
	table                    *runeTable
}

// newBertNormalizer builds the tables of the options.
func newBertNormalizer(clean, cjk, strip, lower bool) *bertNormalizer {
	n := &bertNormalizer{clean: clean, cjk: cjk, strip: strip, lower: lower}
	for r := range rune(utf8.RuneSelf) {
		e := n.classify(r)
		n.ascii[r] = int16(r + e>>kindBits)
		if e&(1<<kindBits-1) == dropControl {
			n.ascii[r] = -1
		}
	}
	n.table = newRuneTable(n.classify)
	return n
}

// classify returns the table entry of r.
func (n *bertNormalizer) classify(r rune) int32 {
	out, kind := r, int32(keepPlain)
	if n.clean {
		switch {
		case classes().control.Has(r):
			return dropControl
		case unicode.Is(unicode.White_Space, r):
			return (' ' - r) << kindBits
		}
	}
	if n.cjk && isIdeograph(r) {
		kind = spaceAround
	}
	if n.strip {
		var buf [8]rune
		d := decompose(buf[:0], r)
		if r >= hangulBase && r < hangulEnd {
			return hangul
		}
		if e := combiningEntry(d[0]); len(d) == 1 && e > 0 && (d[0] == r || e&markGone != 0) {
			return e<<kindBits | combining
		}
		if combiningClass(d[0]) != 0 || !accentsOnly(d[1:]) {
			return composed
		}
		if out = d[0]; classes().mark.Has(out) {
			return dropMark
		}
	} else if n.lower && r == upperDottedI {
		return composed
	}
	if n.lower {
		out = lowerRune(out)
	}
	return (out-r)<<kindBits | kind
}

// accentsOnly reports whether all of d are combining marks that stripping removes.
func accentsOnly(d []rune) bool {
	for _, r := range d {
		if combiningClass(r) == 0 || !classes().mark.Has(r) {
			return false
		}
	}
	return true
}

// combiningEntry returns the class of a mark, with markGone where stripping removes it, and 0 for a starter.
func combiningEntry(r rune) int32 {
	e := int32(combiningClass(r))
	if e != 0 && classes().mark.Has(r) {
		e |= markGone
	}
	return e
}

// entry returns the table entry of r, computed for rare code points.
func (n *bertNormalizer) entry(r rune) int32 {
	if e, ok := n.table.at(r); ok {
		return e
	}
	return n.classify(r)
}

func (n *bertNormalizer) normalize(t *text, src []byte, base int) {
	for i := 0; i < len(src); {
		c := src[i]
		if c < utf8.RuneSelf {
			n.put(t, c, base+i)
			i++
			continue
		}
		r, size := utf8.DecodeRune(src[i:])
		n.putRune(t, r, Span{int32(base + i), int32(base + i + size)})
		i += size
	}
	n.flush(t)
}

// put handles an ASCII byte.
func (n *bertNormalizer) put(t *text, c byte, at int) {
	out := n.ascii[c]
	if out < 0 {
		return
	}
	if len(t.marks) > 0 {
		n.flush(t)
	}
	t.buf = append(t.buf, byte(out))
	if t.track {
		t.prev = Span{int32(at), int32(at + 1)}
		t.from = append(t.from, t.prev)
	}
}

// putRune handles any other code point.
func (n *bertNormalizer) putRune(t *text, r rune, src Span) {
	e := n.entry(r)
	kind, rest := e&(1<<kindBits-1), e>>kindBits
	switch kind {
	case dropControl:
		return
	case combining:
		t.marks = append(t.marks, mark{r: r, class: uint8(rest), gone: rest&markGone != 0, src: src})
		return
	case composed:
		n.putComposed(t, r, src)
		return
	}
	if len(t.marks) > 0 {
		n.flush(t)
	}
	t.prev = src
	switch kind {
	case keepPlain:
		t.emit(r+rest, src)
	case spaceAround:
		t.emit(' ', src)
		t.emit(r+rest, src)
		t.emit(' ', src)
	case hangul:
		t.runes = decompose(t.runes[:0], r)
		for _, jamo := range t.runes {
			t.emit(jamo, src)
		}
	}
}

// emit appends one code point.
func (t *text) emit(r rune, src Span) {
	before := len(t.buf)
	t.buf = utf8.AppendRune(t.buf, r)
	if t.track {
		for range len(t.buf) - before {
			t.from = append(t.from, src)
		}
	}
}

// isIdeograph reports whether r is a separate word for BERT: the blocks of CJK ideographs, without kana and Hangul.
func isIdeograph(r rune) bool {
	switch {
	case r < 0x3400:
		return false
	case r <= 0x4DBF, r >= 0x4E00 && r <= 0x9FFF, r >= 0xF900 && r <= 0xFAFF:
		return true
	case r >= 0x20000 && r <= 0x2A6DF, r >= 0x2A700 && r <= 0x2B81F, r >= 0x2B920 && r <= 0x2CEAF:
		return true
	default:
		return r >= 0x2F800 && r <= 0x2FA1F
	}
}

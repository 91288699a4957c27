package tokenizer

import (
	"slices"
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
		case unicode.IsSpace(r):
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
		stays := func(r rune) bool { return combiningClass(r) == 0 || !classes().mark.Has(r) }
		class := int32(combiningClass(d[0]))
		switch {
		case len(d) == 1 && !stays(d[0]):
			return (class|markGone)<<kindBits | combining
		case len(d) == 1 && class > 0 && d[0] == r:
			return class<<kindBits | combining
		case class != 0 || slices.ContainsFunc(d[1:], stays):
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

// mark is a combining mark between two starters. An inserted one came out of a decomposition and shares the source
// range of what stands before it.
type mark struct {
	r        rune
	class    uint8
	inserted bool
	gone     bool // accent stripping removes it
	src      Span
}

// smallRun is the longest run of marks that insertion sort is used for.
const smallRun = 16

// putComposed writes a code point that becomes several, by decomposition or in lower case.
func (n *bertNormalizer) putComposed(t *text, r rune, src Span) {
	if !n.strip {
		n.putPart(t, r, 0, false, src)
		return
	}
	t.runes = decompose(t.runes[:0], r)
	for i, d := range t.runes {
		n.putPart(t, d, combiningClass(d), i > 0, src)
	}
}

// putPart adds one code point of a decomposition: marks wait for the next starter.
func (n *bertNormalizer) putPart(t *text, r rune, class uint8, inserted bool, src Span) {
	if class != 0 {
		t.marks = append(t.marks, mark{r, class, inserted, classes().mark.Has(r), src})
		return
	}
	n.flush(t)
	if !inserted {
		t.prev = src
	}
	n.finish(t, r, t.prev)
}

// flush sorts the waiting marks in canonical order and writes those that stay. The source ranges are not sorted along: the
// reference aligns by position.
func (n *bertNormalizer) flush(t *text) {
	if len(t.marks) == 0 {
		return
	}
	if kept := slices.ContainsFunc(t.marks, func(m mark) bool { return !m.gone }); !kept {
		for _, m := range t.marks {
			if !m.inserted {
				t.prev = m.src
			}
		}
		t.marks = t.marks[:0]
		return
	}
	t.order = t.order[:0]
	for _, m := range t.marks {
		if !m.inserted {
			t.order = append(t.order, m.src)
		}
	}
	sortByClass(t.marks, func(m *mark) uint8 { return m.class })
	next := 0
	for _, m := range t.marks {
		if !m.inserted {
			t.prev = t.order[next]
			next++
		}
		if !m.gone {
			n.finish(t, m.r, t.prev)
		}
	}
	t.marks = t.marks[:0]
}

// finish strips or lowers one decomposed code point and writes it.
func (n *bertNormalizer) finish(t *text, r rune, src Span) {
	if n.strip && classes().mark.Has(r) {
		return
	}
	if !n.lower {
		t.emit(r, src)
		return
	}
	t.emit(lowerRune(r), src)
	if r == upperDottedI {
		t.emit(dotAbove, src)
	}
}

// sortByClass sorts by combining class, stably. Runs are short in all usual text; for those insertion sort is fastest.
func sortByClass[T any](run []T, class func(*T) uint8) {
	if len(run) > smallRun {
		slices.SortStableFunc(run, func(a, b T) int { return int(class(&a)) - int(class(&b)) })
		return
	}
	for i := 1; i < len(run); i++ {
		for j := i; j > 0 && class(&run[j]) < class(&run[j-1]); j-- {
			run[j], run[j-1] = run[j-1], run[j]
		}
	}
}

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
	case unicode.IsSpace(r):
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

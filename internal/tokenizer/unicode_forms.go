package tokenizer

import (
	"sync"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// form is a pass to one of the Unicode normalization forms (UAX 15).
type form struct {
	compat, compose bool
	plain           *runeTable // 1 for code points that never change
}

// newForm builds the table of the form.
func newForm(compat, compose bool) *form {
	f := &form{compat: compat, compose: compose}
	f.plain = newRuneTable(func(r rune) int32 {
		if f.isPlain(r) {
			return 1
		}
		return 0
	})
	return f
}

// isPlain reports whether r is a starter that stays as it is, whatever stands before it.
func (f *form) isPlain(r rune) bool {
	if r >= 0xD800 && r < 0xE000 || combiningClass(r) != 0 {
		return false
	}
	if f.compose {
		if compositions().second[r] || r >= jamoV && r < jamoT+jamoTCount {
			return false
		}
		if r >= hangulBase && r < hangulEnd {
			return (r-hangulBase)%jamoTCount != 0 // one without a final consonant may yet get it
		}
	}
	var buf [32]rune
	d := f.decompose(buf[:0], r)
	return len(d) == 1 && d[0] == r
}

func (f *form) decompose(dst []rune, r rune) []rune {
	if !f.compat || r >= hangulBase && r < hangulEnd || r < utf8.RuneSelf {
		return decompose(dst, r)
	}
	return appendForm(dst, norm.NFKD, r, classes().undecomposed.Has(r))
}

// part is one code point of a decomposition, with its change as in edit.
type part struct {
	r      rune
	class  uint8
	change int
}

// formScratch holds the parts between two plain code points.
type formScratch struct{ parts, waiting []part }

func (f *form) apply(t *text) {
	if f.unchanged(t.buf) {
		return
	}
	t.rewrite()
	parts := t.form.parts[:0]
	for i := int32(0); int(i) < len(t.buf); {
		r, n := decodeRune(t.buf[i:])
		i += n
		if f.plainAt(r) {
			if len(parts) == 1 && parts[0].class == 0 {
				t.put(parts[0].r, parts[0].change)
			} else {
				f.finish(t, parts)
			}
			parts = append(parts[:0], part{r: r})
			continue
		}
		t.runes = f.decompose(t.runes[:0], r)
		for k, d := range t.runes {
			parts = append(parts, part{d, combiningClass(d), min(k, 1)})
		}
	}
	f.finish(t, parts)
	t.form.parts = parts
	t.swap()
}

// unchanged reports whether all of b is plain, which most texts are.
func (f *form) unchanged(b []byte) bool {
	for i := 0; i < len(b); {
		if b[i] < utf8.RuneSelf {
			i++
			continue
		}
		r, n := utf8.DecodeRune(b[i:])
		if !f.plainAt(r) {
			return false
		}
		i += n
	}
	return true
}

func (f *form) plainAt(r rune) bool {
	if r < utf8.RuneSelf {
		return true
	}
	if p, ok := f.plain.at(r); ok {
		return p == 1
	}
	return f.isPlain(r)
}

// finish sorts the marks of parts, composes where the form does, and writes the result.
func (f *form) finish(t *text, parts []part) {
	for i := 0; i < len(parts); {
		k := i + 1
		if parts[i].class != 0 {
			for k < len(parts) && parts[k].class != 0 {
				k++
			}
			sortByClass(parts[i:k], func(p *part) uint8 { return p.class })
		}
		i = k
	}
	if f.compose {
		t.recompose(parts)
		return
	}
	t.putAll(parts...)
}

// recompose writes parts with starters and marks composed. Its order is that of the reference's loop: waiting marks are written when
// the next starter comes.
func (t *text) recompose(parts []part) {
	waiting, last, composee := t.form.waiting[:0], -1, part{r: -1}
	for _, p := range parts {
		switch {
		case composee.r < 0 && p.class != 0:
			t.put(p.r, p.change)
			continue
		case composee.r < 0:
			composee = p
			continue
		}
		if last < int(p.class) {
			if r := compose(composee.r, p.r); r >= 0 {
				composee.r, composee.change = r, composee.change+p.change-1
				continue
			}
		}
		if p.class != 0 {
			waiting, last = append(waiting, p), int(p.class)
			continue
		}
		t.putAll(composee)
		t.putAll(waiting...)
		composee, waiting, last = p, waiting[:0], -1
	}
	if composee.r >= 0 {
		t.putAll(composee)
		t.putAll(waiting...)
	}
	t.form.waiting = waiting
}

func (t *text) putAll(parts ...part) {
	for _, p := range parts {
		t.put(p.r, p.change)
	}
}

// composition holds the primary composites.
type composition struct {
	pairs  map[[2]rune]rune
	second map[rune]bool // the second code points of the pairs
}

// compositions derives the pairs from the decompositions: a composite is its decomposition without the last code point, composed,
// plus that code point.
var compositions = sync.OnceValue(func() composition {
	c := composition{map[[2]rune]rune{}, map[rune]bool{}}
	for r := rune(0xC0); r < 0x30000; r++ {
		if r >= 0xAC00 && r < 0xE000 || r == composedInReference || !norm.NFC.IsNormalString(string(r)) {
			continue
		}
		d := decompose(nil, r)
		if len(d) < 2 {
			continue
		}
		first := []rune(norm.NFC.String(string(d[:len(d)-1])))
		if len(first) == 1 {
			c.pairs[[2]rune{first[0], d[len(d)-1]}] = r
			c.second[d[len(d)-1]] = true
		}
	}
	return c
})

// compose returns the composite of two code points, negative when there is none.
func compose(a, b rune) rune {
	switch {
	case a >= jamoL && a < jamoL+19 && b >= jamoV && b < jamoV+jamoVCount:
		return hangulBase + ((a-jamoL)*jamoVCount+b-jamoV)*jamoTCount
	case a >= hangulBase && a < hangulEnd && (a-hangulBase)%jamoTCount == 0 && b > jamoT && b < jamoT+jamoTCount:
		return a + b - jamoT
	}
	if r, ok := compositions().pairs[[2]rune{a, b}]; ok {
		return r
	}
	return -1
}

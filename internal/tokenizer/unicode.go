package tokenizer

import (
	"slices"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/tutti-server/tutti/internal/tokenizer/charclass"
)

// classTables are the classes of code points that the stages use, each as the reference has it.
type classTables struct {
	punctuation charclass.Ranges // words of their own for the BERT pre-tokenizer
	control     charclass.Ranges // removed by the BERT clean-up
	mark        charclass.Ranges // non-spacing marks that BERT's accent stripping removes
	combining   charclass.Ranges // a combining class other than 0; younger marks count as starters
	accent      charclass.Ranges // removed by StripAccents
	word        charclass.Ranges // \w of Whitespace
	numeric     charclass.Ranges // split off by Digits
	joining     charclass.Ranges // join the grapheme cluster before them
	prepend     charclass.Ranges // join the code point after them
	pictograph  charclass.Ranges // joined to a pictograph by U+200D
	// undecomposed have a compatibility decomposition, but are younger than the reference's tables.
	undecomposed          charclass.Ranges
	space, letter, number charclass.Ranges // \s, \p{L} and \p{N} of Oniguruma
	scripts               []scriptRange    // of UnicodeScripts, in ascending order
}

// classes reads the tables at the first use.
var classes = sync.OnceValue(func() *classTables {
	named := charclass.Named
	t := &classTables{
		punctuation: named("punctuation"), control: named("control"), mark: named("mark"), combining: named("combining"),
		accent: named("accent"), word: named("word"), numeric: named("numeric"), joining: named("joining"),
		prepend: named("prepend"), pictograph: named("pictograph"),
		undecomposed: named("undecomposed"), space: named("onig.space"), letter: named("onig.L"), number: named("onig.N"),
	}
	for i, name := range charclass.Names("script") {
		for _, r := range named(name) {
			t.scripts = append(t.scripts, scriptRange{r, int32(i + 1)})
		}
	}
	slices.SortFunc(t.scripts, func(a, b scriptRange) int { return int(a.Lo - b.Lo) })
	return t
})

// scriptRange is a range of code points of one script. Scripts are numbered from 1.
type scriptRange struct {
	charclass.Range

	script int32
}

// lowerRange maps the code points lo to hi to their small letters, delta further on.
type lowerRange struct{ lo, hi, delta rune }

// lowerRune returns the first code point of r's lower-case mapping. Only U+0130 has a second one, U+0307.
func lowerRune(r rune) rune {
	if r < utf8.RuneSelf {
		if 'A' <= r && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}
	for _, e := range lowerRanges {
		if e.lo <= r && r <= e.hi {
			return r + e.delta
		}
	}
	return unicode.ToLower(r)
}

// lowerRanges map capitals that are younger than Go's tables to small letters at a fixed distance.
var lowerRanges = []lowerRange{
	{0x1c89, 0x1c89, 1},
	{0xa7cb, 0xa7cb, -42343},
	{0xa7cc, 0xa7cc, 1},
	{0xa7ce, 0xa7ce, 1},
	{0xa7d2, 0xa7d2, 1},
	{0xa7d4, 0xa7d4, 1},
	{0xa7da, 0xa7da, 1},
	{0xa7dc, 0xa7dc, -42561},
	{0x10d50, 0x10d65, 32},
	{0x16ea0, 0x16eb8, 27},
}

// upperDottedI is the only code point whose lower-case mapping has two code points.
const upperDottedI, dotAbove = 0x130, 0x307

// Hangul syllables decompose by arithmetic (Unicode standard, section 3.12).
const (
	hangulBase, hangulEnd = 0xAC00, 0xD7A4
	jamoL, jamoV, jamoT   = 0x1100, 0x1161, 0x11A7
	jamoVCount            = 21
	jamoTCount            = 28
)

// composedInReference decomposes in newer Unicode tables, but not in the reference's.
const composedInReference = 0x11938

// decompose appends the canonical decomposition of r to dst, or r itself, in the order of the tables.
func decompose(dst []rune, r rune) []rune {
	if r >= hangulBase && r < hangulEnd {
		i := r - hangulBase
		dst = append(dst, jamoL+i/(jamoVCount*jamoTCount), jamoV+i%(jamoVCount*jamoTCount)/jamoTCount)
		if t := i % jamoTCount; t != 0 {
			dst = append(dst, jamoT+t)
		}
		return dst
	}
	return appendForm(dst, norm.NFD, r, r == composedInReference)
}

// appendForm appends the decomposition of r, or r itself.
func appendForm(dst []rune, f norm.Form, r rune, stays bool) []rune {
	var enc [utf8.UTFMax]byte
	d := f.Properties(enc[:utf8.EncodeRune(enc[:], r)]).Decomposition()
	if len(d) == 0 || stays {
		return append(dst, r)
	}
	for len(d) > 0 {
		c, n := utf8.DecodeRune(d)
		dst, d = append(dst, c), d[n:]
	}
	return dst
}

// combiningClass returns the canonical combining class of r, 0 for a starter.
func combiningClass(r rune) uint8 {
	if r < 0x300 || !classes().combining.Has(r) {
		return 0
	}
	var enc [utf8.UTFMax]byte
	return norm.NFD.Properties(enc[:utf8.EncodeRune(enc[:], r)]).CCC()
}

// runeTable maps the first 128 Ki code points, which have nearly all living scripts and the emoji, to small numbers in two loads.
// Equal pages are shared.
type runeTable [runeTablePages]*[256]int32

const runeTablePages = 512

// newRuneTable calls of once for every code point of the table.
func newRuneTable(of func(rune) int32) *runeTable {
	t, seen := new(runeTable), map[[256]int32]*[256]int32{}
	for p := range t {
		page := new([256]int32)
		for i := range page {
			page[i] = of(rune(p<<8 | i))
		}
		if old, ok := seen[*page]; ok {
			page = old
		}
		seen[*page], t[p] = page, page
	}
	return t
}

// at returns the number of r, and false for code points beyond the table.
func (t *runeTable) at(r rune) (int32, bool) {
	if uint32(r)>>8 >= runeTablePages {
		return 0, false
	}
	return t[uint32(r)>>8][uint8(r)], true
}

// classifier maps code points to small numbers: ASCII in one load, the code points of a runeTable in two, others by of.
type classifier struct {
	ascii [utf8.RuneSelf]uint8
	table *runeTable
	of    func(rune) int32
}

func newClassifier(of func(rune) int32) *classifier {
	c := &classifier{table: newRuneTable(of), of: of}
	for r := range c.ascii {
		c.ascii[r] = uint8(of(rune(r)))
	}
	return c
}

// class returns the number of r.
func (c *classifier) class(r rune) int32 {
	if r < utf8.RuneSelf {
		return int32(c.ascii[r])
	}
	if v, ok := c.table.at(r); ok {
		return v
	}
	return c.of(r)
}

// next returns the number and the length of the first code point of b, which must not be empty.
func (c *classifier) next(b []byte) (class, size int32) {
	if b[0] < utf8.RuneSelf {
		return int32(c.ascii[b[0]]), 1
	}
	r, n := utf8.DecodeRune(b)
	return c.class(r), int32(n)
}

package tokenizer

import (
	"slices"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// runeRange is a closed range of code points.
type runeRange struct{ lo, hi rune }

// runeRanges is a sorted list of ranges.
type runeRanges []runeRange

// has reports whether r lies in one of the ranges.
func (rs runeRanges) has(r rune) bool {
	_, ok := slices.BinarySearchFunc(rs, r, func(e runeRange, r rune) int {
		if r < e.lo {
			return 1
		}
		if r > e.hi {
			return -1
		}
		return 0
	})
	return ok
}

// lowerRange maps the code points lo to hi to their small letters, delta further on.
type lowerRange struct{ lo, hi, delta rune }

// lowerRune is the first rune of the full lower-case mapping of r. Only U+0130 has a second one, U+0307.
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

// upperDottedI is the only code point whose lower-case mapping has two code points.
const upperDottedI, dotAbove = 0x130, 0x307

// Hangul syllables decompose by arithmetic (Unicode standard, section 3.12).
const (
	hangulBase, hangulEnd = 0xAC00, 0xD7A4
	jamoL, jamoV, jamoT   = 0x1100, 0x1161, 0x11A7
	jamoVCount            = 21
	jamoTCount            = 28
)

// composedInReference has a decomposition in newer Unicode tables, not in the reference's.
const composedInReference = 0x11938

// decompose appends the canonical decomposition of r to dst, or r itself. It keeps the order of the tables.
func decompose(dst []rune, r rune) []rune {
	if r >= hangulBase && r < hangulEnd {
		i := r - hangulBase
		dst = append(dst, jamoL+i/(jamoVCount*jamoTCount), jamoV+i%(jamoVCount*jamoTCount)/jamoTCount)
		if t := i % jamoTCount; t != 0 {
			dst = append(dst, jamoT+t)
		}
		return dst
	}
	var enc [utf8.UTFMax]byte
	d := norm.NFD.Properties(enc[:utf8.EncodeRune(enc[:], r)]).Decomposition()
	if len(d) == 0 || r == composedInReference {
		return append(dst, r)
	}
	for len(d) > 0 {
		c, n := utf8.DecodeRune(d)
		dst, d = append(dst, c), d[n:]
	}
	return dst
}

// combiningClass is the canonical combining class of r, 0 for a starter.
func combiningClass(r rune) uint8 {
	if r < 0x300 || !combiningRanges.has(r) {
		return 0
	}
	var enc [utf8.UTFMax]byte
	return norm.NFD.Properties(enc[:utf8.EncodeRune(enc[:], r)]).CCC()
}

// runeTable answers a small number for each of the first 128 Ki code points, which hold nearly all living
// scripts and the emoji, in two loads. Equal pages are shared.
type runeTable [runeTablePages]*[256]int32

const runeTablePages = 512

// newRuneTable asks of for every code point once.
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

// at is the number of r, and false for code points beyond the table.
func (t *runeTable) at(r rune) (int32, bool) {
	if uint32(r)>>8 >= runeTablePages {
		return 0, false
	}
	return t[uint32(r)>>8][uint8(r)], true
}

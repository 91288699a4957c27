package onig

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tutti-server/tutti/internal/tokenizer/charclass"
)

// span is a closed range of code points, and ranges is a sorted list of them.
type (
	span   = charclass.Range
	ranges = charclass.Ranges
)

// named returns a class of Oniguruma: a property such as "Lu" or "Han", a POSIX bracket such as "[:alpha:]", or "word" and
// "space" for \w and \s outside of brackets.
func named(name string) ranges { return charclass.Named("onig." + name) }

// of returns the set of the code points lo to hi.
func of(lo, hi rune) ranges { return ranges{{Lo: lo, Hi: hi}} }

// runeSet is a set of code points, fast for ASCII.
type runeSet struct {
	ascii  [2]uint64
	ranges ranges
}

func newRuneSet(rs ranges) runeSet {
	s := runeSet{ranges: rs}
	for r := range rune(utf8.RuneSelf) {
		if rs.Has(r) {
			s.ascii[r>>6] |= 1 << (r & 63)
		}
	}
	return s
}

func (s *runeSet) Has(r rune) bool {
	if r < utf8.RuneSelf {
		return s.ascii[r>>6]>>(r&63)&1 != 0
	}
	return s.ranges.Has(r)
}

// union sorts and joins ranges.
func union(rs ranges) ranges {
	rs = slices.Clone(rs)
	slices.SortFunc(rs, func(a, b span) int { return int(a.Lo) - int(b.Lo) })
	var out ranges
	for _, r := range rs {
		if n := len(out); n > 0 && r.Lo <= out[n-1].Hi+1 {
			out[n-1].Hi = max(out[n-1].Hi, r.Hi)
			continue
		}
		out = append(out, r)
	}
	return out
}

// complement returns the code points outside rs, which must be sorted.
func complement(rs ranges) ranges {
	var out ranges
	next := rune(0)
	for _, r := range rs {
		if next < r.Lo {
			out = append(out, span{Lo: next, Hi: r.Lo - 1})
		}
		next = r.Hi + 1
	}
	if next <= unicode.MaxRune {
		out = append(out, span{Lo: next, Hi: unicode.MaxRune})
	}
	return out
}

// intersect returns the code points in both sets, which must be sorted.
func intersect(a, b ranges) ranges {
	return complement(union(append(complement(a), complement(b)...)))
}

// folded adds the other cases of each code point. Ranges of more than 0x2000 code points, such as \P{L}, stay as they are.
func folded(rs ranges) ranges {
	out := slices.Clone(rs)
	for _, r := range rs {
		if r.Hi-r.Lo > 0x2000 {
			continue
		}
		for c := r.Lo; c <= r.Hi; c++ {
			for f := unicode.SimpleFold(c); f != c; f = unicode.SimpleFold(f) {
				out = append(out, span{Lo: f, Hi: f})
			}
		}
	}
	return union(out)
}

// propertySet returns the class of \p{name}. Names Oniguruma's tables lack come from package unicode.
func propertySet(name string) (ranges, error) {
	plain := strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r == ' ' {
			return -1
		}
		return unicode.ToLower(r)
	}, name)
	long := map[string]string{
		"letter": "L", "number": "N", "mark": "M", "punctuation": "P", "symbol": "S", "separator": "Z", "other": "C",
		"uppercaseletter": "Lu", "lowercaseletter": "Ll", "titlecaseletter": "Lt", "modifierletter": "Lm",
		"otherletter": "Lo", "nonspacingmark": "Mn", "decimalnumber": "Nd", "digit": "Nd",
	}
	for _, key := range charclass.Names("onig.") {
		key = strings.TrimPrefix(key, "onig.")
		if strings.ToLower(key) == plain || key == long[plain] {
			return named(key), nil
		}
	}
	switch plain {
	case "whitespace":
		return named("space"), nil
	case "any":
		return of(0, unicode.MaxRune), nil
	}
	for _, tables := range []map[string]*unicode.RangeTable{unicode.Categories, unicode.Scripts} {
		for key, table := range tables {
			if strings.ToLower(strings.ReplaceAll(key, "_", "")) == plain {
				return tableRanges(table), nil
			}
		}
	}
	return nil, fmt.Errorf("property '%s' is not supported", name)
}

func tableRanges(t *unicode.RangeTable) ranges {
	var out ranges
	add := func(lo, hi, stride rune) {
		if stride == 1 {
			out = append(out, span{Lo: lo, Hi: hi})
			return
		}
		for r := lo; r <= hi; r += stride {
			out = append(out, span{Lo: r, Hi: r})
		}
	}
	for _, r := range t.R16 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	for _, r := range t.R32 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	return union(out)
}

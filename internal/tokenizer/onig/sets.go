package onig

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// span is a closed range of code points.
type span struct{ lo, hi rune }

// ranges is a sorted list of ranges.
type ranges []span

// has reports whether r lies in one of the ranges.
func (rs ranges) has(r rune) bool {
	_, ok := slices.BinarySearchFunc(rs, r, func(e span, r rune) int {
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

// IsSpace reports whether \s matches r.
func IsSpace(r rune) bool { return spaceRanges.has(r) }

// IsLetter reports whether \p{L} matches r.
func IsLetter(r rune) bool { return propertyRanges["L"].has(r) }

// IsNumber reports whether \p{N} matches r.
func IsNumber(r rune) bool { return propertyRanges["N"].has(r) }

// runeSet is a set of code points, fast for ASCII.
type runeSet struct {
	ascii  [2]uint64
	ranges ranges
}

func newRuneSet(rs ranges) runeSet {
	s := runeSet{ranges: rs}
	for r := range rune(utf8.RuneSelf) {
		if rs.has(r) {
			s.ascii[r>>6] |= 1 << (r & 63)
		}
	}
	return s
}

func (s *runeSet) has(r rune) bool {
	if r < utf8.RuneSelf {
		return s.ascii[r>>6]>>(r&63)&1 != 0
	}
	return s.ranges.has(r)
}

// union sorts and joins ranges.
func union(rs ranges) ranges {
	rs = slices.Clone(rs)
	slices.SortFunc(rs, func(a, b span) int { return int(a.lo) - int(b.lo) })
	var out ranges
	for _, r := range rs {
		if n := len(out); n > 0 && r.lo <= out[n-1].hi+1 {
			out[n-1].hi = max(out[n-1].hi, r.hi)
			continue
		}
		out = append(out, r)
	}
	return out
}

// complement is every code point outside rs, which is a union.
func complement(rs ranges) ranges {
	var out ranges
	next := rune(0)
	for _, r := range rs {
		if next < r.lo {
			out = append(out, span{next, r.lo - 1})
		}
		next = r.hi + 1
	}
	if next <= unicode.MaxRune {
		out = append(out, span{next, unicode.MaxRune})
	}
	return out
}

// intersect is what two unions share.
func intersect(a, b ranges) ranges {
	return complement(union(append(complement(a), complement(b)...)))
}

// folded adds the other cases of each code point, where the set is small enough to have meant them.
func folded(rs ranges) ranges {
	out := slices.Clone(rs)
	for _, r := range rs {
		if r.hi-r.lo > 0x2000 {
			continue
		}
		for c := r.lo; c <= r.hi; c++ {
			for f := unicode.SimpleFold(c); f != c; f = unicode.SimpleFold(f) {
				out = append(out, span{f, f})
			}
		}
	}
	return union(out)
}

var spaceRanges = ranges{
	{9, 13},
	{32, 32},
	{0x85, 0x85},
	{0xa0, 0xa0},
	{0x1680, 0x1680},
	{0x2000, 0x200a},
	{0x2028, 0x2029},
	{0x202f, 0x202f},
	{0x205f, 0x205f},
	{0x3000, 0x3000},
}

// propertySet is the set of a Unicode property by its name, as \p{} has it.
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
	for key, rs := range propertyRanges {
		if strings.ToLower(key) == plain || key == long[plain] {
			return rs, nil
		}
	}
	switch plain {
	case "space", "whitespace":
		return spaceRanges, nil
	case "word":
		return wordRanges, nil
	case "any":
		return ranges{{0, unicode.MaxRune}}, nil
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
			out = append(out, span{lo, hi})
			return
		}
		for r := lo; r <= hi; r += stride {
			out = append(out, span{r, r})
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

package tokenize

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// runeSet is a set of code points, fast for ASCII.
type runeSet struct {
	ascii  [2]uint64
	ranges runeRanges
}

func newRuneSet(rs runeRanges) runeSet {
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
func union(rs runeRanges) runeRanges {
	rs = slices.Clone(rs)
	slices.SortFunc(rs, func(a, b runeRange) int { return int(a.lo) - int(b.lo) })
	var out runeRanges
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
func complement(rs runeRanges) runeRanges {
	var out runeRanges
	next := rune(0)
	for _, r := range rs {
		if next < r.lo {
			out = append(out, runeRange{next, r.lo - 1})
		}
		next = r.hi + 1
	}
	if next <= unicode.MaxRune {
		out = append(out, runeRange{next, unicode.MaxRune})
	}
	return out
}

// intersect is what two unions share.
func intersect(a, b runeRanges) runeRanges {
	return complement(union(append(complement(a), complement(b)...)))
}

// folded adds the other cases of each code point, where the set is small enough to have meant them.
func folded(rs runeRanges) runeRanges {
	out := slices.Clone(rs)
	for _, r := range rs {
		if r.hi-r.lo > 0x2000 {
			continue
		}
		for c := r.lo; c <= r.hi; c++ {
			for f := unicode.SimpleFold(c); f != c; f = unicode.SimpleFold(f) {
				out = append(out, runeRange{f, f})
			}
		}
	}
	return union(out)
}

// onigSpace is \s of Oniguruma.
func onigSpace(r rune) bool { return unicode.Is(unicode.White_Space, r) }

var spaceRanges = runeRanges{
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
func propertySet(name string) (runeRanges, error) {
	plain := strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r == ' ' {
			return drop
		}
		return unicode.ToLower(r)
	}, name)
	long := map[string]string{
		"letter": "L", "number": "N", "mark": "M", "punctuation": "P", "symbol": "S", "separator": "Z", "other": "C",
		"uppercaseletter": "Lu", "lowercaseletter": "Ll", "titlecaseletter": "Lt", "modifierletter": "Lm",
		"otherletter": "Lo", "nonspacingmark": "Mn", "decimalnumber": "Nd", "digit": "Nd",
	}
	for key, rs := range onigRanges {
		if strings.ToLower(key) == plain || key == long[plain] {
			return rs, nil
		}
	}
	switch plain {
	case "space", "whitespace":
		return spaceRanges, nil
	case "word":
		return onigWordRanges, nil
	case "any":
		return runeRanges{{0, unicode.MaxRune}}, nil
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

func tableRanges(t *unicode.RangeTable) runeRanges {
	var out runeRanges
	add := func(lo, hi, stride rune) {
		if stride == 1 {
			out = append(out, runeRange{lo, hi})
			return
		}
		for r := lo; r <= hi; r += stride {
			out = append(out, runeRange{r, r})
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

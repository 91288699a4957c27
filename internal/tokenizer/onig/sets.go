package onig

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/rangetable"

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
	rangetable.Visit(t, func(r rune) { out = append(out, span{Lo: r, Hi: r}) })
	return union(out)
}

// class reads what follows a '['.
func (p *parser) class() (ranges, error) {
	if p.depth++; p.depth > maxNesting {
		return nil, errors.New("classes are nested too deep")
	}
	defer func() { p.depth-- }()
	negative := p.take("^")
	var set ranges
	all := of(0, unicode.MaxRune)
	for first := true; ; first = false {
		if p.rest == "" {
			return nil, errors.New("a class does not end")
		}
		if !first && p.take("]") {
			break
		}
		if p.take("&&") {
			all, set = intersect(all, union(set)), nil
			continue
		}
		part, err := p.classItem()
		if err != nil {
			return nil, err
		}
		set = append(set, part...)
	}
	set = intersect(all, union(set))
	if negative {
		set = complement(set)
	}
	return set, nil
}

// bracket reads a POSIX bracket, such as [:alpha:] or [:^alpha:], after its '['.
func (p *parser) bracket() (ranges, error) {
	name, rest, ok := strings.Cut(p.rest[1:], ":]")
	plain, negative := strings.CutPrefix(name, "^")
	set := named("[:" + plain + ":]")
	if !ok || set == nil {
		return nil, fmt.Errorf("the POSIX bracket '[%.20s' is not supported", p.rest)
	}
	if p.rest = rest; negative {
		set = complement(set)
	}
	return set, nil
}

// classEscape reads an escape in a class, where \w is [:word:] and not the \w of the outside.
func (p *parser) classEscape() (set ranges, single rune, err error) {
	switch word := named("[:word:]"); {
	case p.take("w"):
		return word, -1, nil
	case p.take("W"):
		return complement(word), -1, nil
	default:
		return p.escaped()
	}
}

// classItem reads a nested class, an escape, a code point or a range.
func (p *parser) classItem() (ranges, error) {
	low := p.next()
	switch low {
	case '[':
		if strings.HasPrefix(p.rest, ":") {
			return p.bracket()
		}
		return p.class()
	case '\\':
		if p.rest == "" {
			return nil, errors.New("a backslash at the end")
		}
		if p.take("b") {
			low = '\b'
			break
		}
		set, single, err := p.classEscape()
		if err != nil || single < 0 {
			return set, err
		}
		low = single
	}
	if !strings.HasPrefix(p.rest, "-") || strings.HasPrefix(p.rest, "-]") {
		return of(low, low), nil
	}
	p.rest = p.rest[1:]
	high := p.next()
	if high == '\\' {
		set, single, err := p.classEscape()
		if err != nil {
			return nil, err
		}
		if single < 0 {
			return slices.Concat(of(low, low), of('-', '-'), set), nil
		}
		high = single
	}
	if high < low {
		return nil, fmt.Errorf("the range from '%c' to '%c' is empty", low, high)
	}
	return of(low, high), nil
}

package onig

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

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

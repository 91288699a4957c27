package onig

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The kinds of a node of a parsed pattern.
const (
	nodeSet = iota
	nodeCat
	nodeAlt
	nodeRepeat
	nodeAtomic
	nodeLook
	nodeAssert
)

// node is a part of a parsed pattern.
type node struct {
	kind             int
	set              ranges
	kids             []*node
	low, high        int // of a repeat; high is unbounded when negative
	lazy             bool
	negative, behind bool // of a look-around
	assert           int
	at               int // the position in the pattern, for errors
}

// The assertions about a position.
const (
	atLineStart = iota
	atLineEnd
	atTextStart
	atTextEnd
	atLastLine
	atWordEdge
	noWordEdge
)

// The longest pattern in bytes, and the deepest nesting of its groups.
const (
	maxPattern = 1 << 12
	maxNesting = 50
)

// parser reads the part of Oniguruma's syntax that tokenizer files use. Anything else is an error.
type parser struct {
	rest     string
	fold     bool
	dotAll   bool
	depth    int
	original string
}

func parse(s string) (*node, error) {
	if len(s) > maxPattern || !utf8.ValidString(s) {
		return nil, fmt.Errorf("a pattern of %d bytes: expected valid UTF-8 of at most %d", len(s), maxPattern)
	}
	p := &parser{rest: s, original: s}
	n, err := p.alternatives()
	if err == nil && p.rest != "" {
		err = errors.New("a ')' too many")
	}
	if err != nil {
		return nil, fmt.Errorf("pattern '%s', byte %d: %w", s, p.at(), err)
	}
	return n, nil
}

// at returns the position in the pattern, in bytes.
func (p *parser) at() int { return len(p.original) - len(p.rest) }

func (p *parser) next() rune {
	r, n := utf8.DecodeRuneInString(p.rest)
	p.rest = p.rest[n:]
	return r
}

func (p *parser) take(prefix string) bool {
	rest, ok := strings.CutPrefix(p.rest, prefix)
	p.rest = rest
	return ok
}

// alternatives reads up to a ')' or the end. Options that are set inside end there.
func (p *parser) alternatives() (*node, error) {
	fold, dotAll := p.fold, p.dotAll
	defer func() { p.fold, p.dotAll = fold, dotAll }()
	if p.depth++; p.depth > maxNesting {
		return nil, errors.New("groups are nested too deep")
	}
	defer func() { p.depth-- }()
	alt := &node{kind: nodeAlt}
	for {
		cat, err := p.concatenation()
		if err != nil {
			return nil, err
		}
		alt.kids = append(alt.kids, cat)
		if !p.take("|") {
			break
		}
	}
	if len(alt.kids) == 1 {
		return alt.kids[0], nil
	}
	return alt, nil
}

func (p *parser) concatenation() (*node, error) {
	cat := &node{kind: nodeCat}
	for p.rest != "" && p.rest[0] != '|' && p.rest[0] != ')' {
		at := p.at()
		n, err := p.atom()
		if err != nil {
			return nil, err
		}
		if n == nil {
			continue
		}
		n.at = at
		if n, err = p.repeats(n); err != nil {
			return nil, err
		}
		cat.kids = append(cat.kids, n)
	}
	return cat, nil
}

// one returns the node of a set, with the other cases of its code points where the options say so.
func (p *parser) one(set ranges) *node {
	if p.fold {
		set = folded(set)
	}
	return &node{kind: nodeSet, set: set}
}

func (p *parser) atom() (*node, error) {
	switch r := p.next(); r {
	case '(':
		return p.group()
	case '[':
		set, err := p.class()
		if err != nil {
			return nil, err
		}
		return p.one(set), nil
	case '.':
		set := complement(of('\n', '\n'))
		if p.dotAll {
			set = of(0, unicode.MaxRune)
		}
		return &node{kind: nodeSet, set: set}, nil
	case '^':
		return &node{kind: nodeAssert, assert: atLineStart}, nil
	case '$':
		return &node{kind: nodeAssert, assert: atLineEnd}, nil
	case '*', '+', '?':
		return nil, fmt.Errorf("nothing for '%c' to repeat", r)
	case '\\':
		return p.escape()
	default:
		return p.one(of(r, r)), nil
	}
}

// group reads what follows a '('.
func (p *parser) group() (*node, error) {
	wrap := node{kind: nodeCat}
	switch {
	case !p.take("?"):
	case p.take(":"):
	case p.take("="):
		wrap.kind = nodeLook
	case p.take("!"):
		wrap.kind, wrap.negative = nodeLook, true
	case p.take("<="):
		wrap.kind, wrap.behind = nodeLook, true
	case p.take("<!"):
		wrap.kind, wrap.behind, wrap.negative = nodeLook, true, true
	case p.take(">"):
		wrap.kind = nodeAtomic
	case p.take("<"):
		_, rest, ok := strings.Cut(p.rest, ">")
		if !ok {
			return nil, errors.New("a group's name does not end")
		}
		p.rest = rest
	default:
		return p.options()
	}
	return p.closed(wrap)
}

func (p *parser) closed(wrap node) (*node, error) {
	inner, err := p.alternatives()
	if err != nil {
		return nil, err
	}
	if !p.take(")") {
		return nil, errors.New("a group does not end")
	}
	wrap.kids = []*node{inner}
	return &wrap, nil
}

// options reads "i)", "i:...)" and the like. Options without a group hold to the end of the enclosing one.
func (p *parser) options() (*node, error) {
	fold, dotAll, on := p.fold, p.dotAll, true
	for p.rest != "" {
		switch r := p.next(); r {
		case '-':
			on = false
		case 'i':
			fold = on
		case 'm':
			dotAll = on
		case ')':
			p.fold, p.dotAll = fold, dotAll
			return nil, nil
		case ':':
			oldFold, oldDot := p.fold, p.dotAll
			p.fold, p.dotAll = fold, dotAll
			n, err := p.closed(node{kind: nodeCat})
			p.fold, p.dotAll = oldFold, oldDot
			return n, err
		default:
			return nil, fmt.Errorf("option '%c' of a group is not supported", r)
		}
	}
	return nil, errors.New("a group's options do not end")
}

// maxRepeats is the largest count of a repeat.
const maxRepeats = 1000

// repeats reads the repeats after an atom.
func (p *parser) repeats(n *node) (*node, error) {
	for p.rest != "" {
		low, high, interval := 0, -1, false
		switch {
		case p.take("*"):
		case p.take("+"):
			low = 1
		case p.take("?"):
			high = 1
		default:
			var ok bool
			if low, high, ok = p.interval(); !ok {
				return n, nil
			}
			interval = true
		}
		if low > maxRepeats || high > maxRepeats || high >= 0 && low > high {
			return nil, fmt.Errorf("a repeat from %d to %d, expected at most %d", low, high, maxRepeats)
		}
		n = &node{kind: nodeRepeat, kids: []*node{n}, low: low, high: high, at: n.at}
		switch {
		case interval && low == high:
		case p.take("?"):
			n.lazy = true
		case !interval && p.take("+"):
			n = &node{kind: nodeAtomic, kids: []*node{n}}
		}
	}
	return n, nil
}

// interval reads "{n}", "{n,}", "{n,m}" or "{,m}"; anything else in braces is text.
func (p *parser) interval() (low, high int, ok bool) {
	body, rest, found := strings.Cut(p.rest[1:], "}")
	first, second, comma := strings.Cut(body, ",")
	if p.rest[0] != '{' || !found || first == "" && second == "" {
		return 0, 0, false
	}
	ok = true
	count := func(s string, absent int) int {
		if s == "" {
			return absent
		}
		n, err := strconv.Atoi(s)
		ok = ok && err == nil && n >= 0
		return n
	}
	if low, high = count(first, 0), count(second, -1); !comma {
		high = low
	}
	if ok {
		p.rest = rest
	}
	return low, high, ok
}

// escape reads what follows a backslash outside a class.
func (p *parser) escape() (*node, error) {
	if p.rest == "" {
		return nil, errors.New("a backslash at the end")
	}
	for text, assert := range map[string]int{"A": atTextStart, "z": atTextEnd, "Z": atLastLine, "b": atWordEdge, "B": noWordEdge} {
		if p.take(text) {
			return &node{kind: nodeAssert, assert: assert}, nil
		}
	}
	set, single, err := p.escaped()
	if err != nil {
		return nil, err
	}
	if single >= 0 {
		set = of(single, single)
	}
	return p.one(set), nil
}

// escaped reads an escape for a set, or for a single code point. The code point is negative for a set.
func (p *parser) escaped() (set ranges, single rune, err error) {
	switch r := p.next(); r {
	case 's', 'S', 'd', 'D', 'w', 'W':
		set = named(map[rune]string{'s': "space", 'd': "Nd", 'w': "word"}[unicode.ToLower(r)])
		if unicode.IsUpper(r) {
			set = complement(set)
		}
		return set, -1, nil
	case 'h':
		return slices.Concat(of('0', '9'), of('A', 'F'), of('a', 'f')), -1, nil
	case 'p', 'P':
		set, err := p.property(r == 'P')
		return set, -1, err
	case 'x', 'u':
		single, err := p.number(r)
		return nil, single, err
	default:
		if i := strings.IndexRune("tnrfvae", r); i >= 0 {
			return nil, rune("\t\n\r\f\v\a\x1b"[i]), nil
		}
		if r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
			return nil, -1, fmt.Errorf("escape '\\%c' is not supported", r)
		}
		return nil, r, nil
	}
}

func (p *parser) property(negative bool) (ranges, error) {
	name := ""
	if p.take("{") {
		var ok bool
		if name, p.rest, ok = strings.Cut(p.rest, "}"); !ok {
			return nil, errors.New("a property's name does not end")
		}
	} else if p.rest != "" {
		name = string(p.next())
	}
	if rest, ok := strings.CutPrefix(name, "^"); ok {
		name, negative = rest, !negative
	}
	set, err := propertySet(name)
	if err == nil && negative {
		set = complement(union(set))
	}
	return set, err
}

// number reads the code point of \xHH, \x{H...} and \uHHHH.
func (p *parser) number(kind rune) (rune, error) {
	var digits string
	if kind == 'x' && p.take("{") {
		var ok bool
		if digits, p.rest, ok = strings.Cut(p.rest, "}"); !ok {
			return 0, errors.New("a code point does not end")
		}
	} else {
		n := 2
		if kind == 'u' {
			n = 4
		}
		n = min(n, len(p.rest))
		digits, p.rest = p.rest[:n], p.rest[n:]
	}
	v, err := strconv.ParseUint(digits, 16, 32)
	if err != nil || v > unicode.MaxRune || kind == 'x' && len(digits) == 2 && v >= utf8.RuneSelf {
		return 0, fmt.Errorf("'%s' is not the number of a code point", digits)
	}
	return rune(v), nil
}

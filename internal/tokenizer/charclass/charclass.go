// Package charclass holds the classes of code points that the reference libraries use: what the regular expressions' \p{L}
// matches, what BERT takes for punctuation, which marks StripAccents removes.
//
// Each library carries tables of its own Unicode version, so that they differ from each other and from Go's. For example,
// Oniguruma's letters are those of Unicode 16 and Go's those of Unicode 15, while BERT's punctuation is that of Unicode 8. classes.txt has each class
// by its name with its ranges in hexadecimal: "onig.Nd 30-39 660-669 ...". ../testdata/make_classes.py reads the ranges from
// the behaviour of PyPI tokenizers 0.23.3, one code point at a time, and writes the file.
package charclass

import (
	_ "embed" // classes.txt
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Range is a closed range of code points.
type Range struct{ Lo, Hi rune }

// Ranges is a class of code points: ranges in ascending order that do not overlap.
type Ranges []Range

// Has reports whether r is in the class.
func (rs Ranges) Has(r rune) bool {
	i, _ := slices.BinarySearchFunc(rs, r, func(e Range, r rune) int { return int(e.Hi - r) })
	return i < len(rs) && r >= rs[i].Lo
}

//go:embed classes.txt
var text string

// all parses the file at the first use: servers without a tokenizer do not pay for it.
var all = sync.OnceValue(func() map[string]Ranges {
	out := map[string]Ranges{}
	for line := range strings.Lines(text) {
		name, list, _ := strings.Cut(strings.TrimSpace(line), " ")
		var rs Ranges
		for field := range strings.FieldsSeq(list) {
			low, high, wide := strings.Cut(field, "-")
			if !wide {
				high = low
			}
			rs = append(rs, Range{codePoint(low), codePoint(high)})
		}
		out[name] = rs
	}
	return out
})

// codePoint parses a hexadecimal number of the embedded file, whose form a test checks.
func codePoint(hex string) rune {
	n, _ := strconv.ParseInt(hex, 16, 32)
	return rune(n)
}

// Named returns the class with that name, and nil when there is none. The caller must not change it.
func Named(name string) Ranges { return all()[name] }

// Names returns the names that begin with a prefix, sorted.
func Names(prefix string) []string {
	var out []string
	for name := range all() {
		if strings.HasPrefix(name, prefix) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

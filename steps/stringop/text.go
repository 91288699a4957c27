package stringop

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/transform"

	"github.com/tutti-server/tutti/core/config"
)

func isASCII(text []byte) bool {
	for _, c := range text {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// flipped appends text with the letters of the alphabet that begins at first in the
// other case.
func flipped(dst, text []byte, first byte) []byte {
	for _, c := range text {
		if c-first < 26 {
			c ^= 'a' - 'A'
		}
		dst = append(dst, c)
	}
	return dst
}

// cased appends text in the case of c. What the mapping cannot take stays as it is.
func cased(dst, text []byte, c cases.Caser) []byte {
	c.Reset()
	out, _, err := transform.Append(c, dst, text)
	if err != nil {
		return append(dst, text...)
	}
	return out
}

// mapped appends text with f applied to every code point; bytes that are not UTF-8 stay.
func mapped(dst, text []byte, f func(rune) rune) []byte {
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		if r == utf8.RuneError && n == 1 {
			dst = append(dst, text[0])
		} else {
			dst = utf8.AppendRune(dst, f(r))
		}
		text = text[n:]
	}
	return dst
}

// titled appends text with the first cased code point of each run of them in title case
// and the others in lower case, as Python's str.title does, but one code point for one.
func titled(dst, text []byte) []byte {
	inside := false
	return mapped(dst, text, func(r rune) rune {
		first := !inside
		inside = unicode.IsLower(r) || unicode.IsUpper(r) || unicode.IsTitle(r)
		if first {
			return unicode.ToTitle(r)
		}
		return unicode.ToLower(r)
	})
}

// part is a piece of a template: text, and the elements of an input after it.
type part struct {
	text  string
	input int  // negative for none
	again bool // a later part has the same input
}

// joinAll is the template of operation join: the first input alone.
var joinAll = []part{{input: 0}}

// parseTemplate splits a template at its placeholders. Every input must occur.
func parseTemplate(text string, inputs []config.Port) ([]part, error) {
	if text == "" {
		return nil, fmt.Errorf("operation '%s' needs parameter 'template'", opTemplate)
	}
	var parts []part
	last := make([]int, len(inputs))
	for i := range last {
		last[i] = -1
	}
	var plain strings.Builder
	for text != "" {
		i := strings.IndexAny(text, "{}")
		if i < 0 {
			plain.WriteString(text)
			break
		}
		plain.WriteString(text[:i])
		if i+1 < len(text) && text[i+1] == text[i] {
			plain.WriteByte(text[i])
			text = text[i+2:]
			continue
		}
		name, rest, ok := strings.Cut(text[i+1:], "}")
		at := slices.IndexFunc(inputs, func(p config.Port) bool { return p.Name == name })
		if text[i] == '}' || !ok || at < 0 {
			return nil, fmt.Errorf("template has '%.40s', expected the name of an input in braces, or a brace twice", text[i:])
		}
		if last[at] >= 0 {
			parts[last[at]].again = true
		}
		last[at] = len(parts)
		parts = append(parts, part{text: plain.String(), input: at})
		plain.Reset()
		text = rest
	}
	for i, at := range last {
		if at < 0 {
			return nil, fmt.Errorf("template does not name input '%s'", inputs[i].Name)
		}
	}
	return append(parts, part{text: plain.String(), input: -1}), nil
}

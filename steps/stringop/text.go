package stringop

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/transform"

	"github.com/tutti-server/tutti/core/config"
)

// cased appends text in the case of c, or unchanged where the mapping fails. In ASCII those are the letters of the other case than first,
// an 'A' or 'a'.
func cased(dst, text []byte, first byte, c cases.Caser) []byte {
	start := len(dst)
	for _, l := range text {
		if l >= utf8.RuneSelf {
			c.Reset()
			out, _, err := transform.Append(c, dst[:start], text)
			if err != nil {
				return append(dst[:start], text...)
			}
			return out
		}
		if l-first < 26 {
			l ^= 'a' - 'A'
		}
		dst = append(dst, l)
	}
	return dst
}

// titled appends text with the first cased code point of each run in title case and the others in lower case, as Python's
// str.title does, but one code point for one. Bytes that are not UTF-8 stay.
func titled(dst, text []byte) []byte {
	for inside := false; len(text) > 0; {
		r, n := utf8.DecodeRune(text)
		first := !inside
		inside = unicode.IsLower(r) || unicode.IsUpper(r) || unicode.IsTitle(r)
		switch {
		case r == utf8.RuneError && n == 1:
			dst = append(dst, text[0])
		case first:
			dst = utf8.AppendRune(dst, unicode.ToTitle(r))
		default:
			dst = utf8.AppendRune(dst, unicode.ToLower(r))
		}
		text = text[n:]
	}
	return dst
}

// part is a piece of a template: text followed by the elements of an input. For example, "{Q} or {C}" has the parts
// {"", Q}, {" or ", C} and {"", none}.
type part struct {
	text  string
	input int  // negative for none
	again bool // a later part has the same input
}

// joinAll is the template of operation join: the first input.
var joinAll = []part{{input: 0}}

// parseTemplate splits a template at its placeholders. Every input must occur.
func parseTemplate(text string, inputs []config.Port) ([]part, error) {
	if text == "" {
		return nil, errors.New("operation 'template' needs parameter 'template'")
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

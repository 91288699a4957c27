package spans

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tutti-server/tutti/internal/jsontext"
	"github.com/tutti-server/tutti/steps"
)

// label is a class of tokens.
type label struct {
	name, quoted []byte // as passages have it, and the same as a JSON string
	tag          string // of passages that may be one
	begins, ends bool   // whether a passage begins or ends with such a token
	ignored      bool
}

// readLabels reads the labels file: one label per line, the class's number is the line's.
func readLabels(s *steps.Settings) ([]label, error) {
	name := s.Params[paramLabels]
	path, err := s.Find(name)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the labels of model '%s': %w", s.Model, err)
	}
	var ignore []string
	if list := s.Params[paramIgnore]; list != "" {
		ignore = strings.Split(list, ",")
	}
	var out []label
	for line := range bytes.SplitSeq(bytes.TrimSuffix(text, []byte("\n")), []byte("\n")) {
		line = bytes.TrimSuffix(line, []byte("\r"))
		if !utf8.Valid(line) {
			return nil, fmt.Errorf("labels file '%s' of model '%s', line %d: expected UTF-8, found % x", name, s.Model, len(out)+1, line)
		}
		l := newLabel(string(line), s.Params[paramScheme], s.Params[paramStrategy] == strategyNone)
		l.ignored = slices.Contains(ignore, string(l.name))
		out = append(out, l)
	}
	return out, nil
}

// newLabel reads a label such as B-PER. With whole, the name includes the prefix.
func newLabel(text, scheme string, whole bool) label {
	l := label{tag: text}
	if prefix, tag, ok := strings.Cut(text, "-"); ok && part(prefix, scheme) {
		l.tag = tag
		l.begins = prefix == "B" || prefix == "U" || prefix == "S"
		l.ends = prefix == "L" || prefix == "E" || prefix == "U" || prefix == "S"
	}
	name := text
	if _, tag, ok := strings.Cut(text, "-"); ok && !whole {
		name = tag
	}
	l.name, l.quoted = []byte(name), jsontext.Append(nil, []byte(name))
	return l
}

// part reports whether prefix says which part of a passage a token is: BIO has its first and the others, BILOU (or
// BIOES) its last and passages of one token, too.
func part(prefix, scheme string) bool {
	switch prefix {
	case "B", "I":
		return true
	case "L", "E", "U", "S":
		return scheme == schemeBILOU
	default:
		return false
	}
}

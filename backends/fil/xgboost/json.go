package xgboost

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
)

// jsonSource reads JSON with the numbers NaN, Infinity and -Infinity, which XGBoost writes and encoding/json refuses.
type jsonSource struct {
	all   string
	pos   int
	depth int
}

func (s *jsonSource) at() int { return s.pos }

// peek returns the next byte that is not white space, 0 at the end.
func (s *jsonSource) peek() byte {
	for ; s.pos < len(s.all); s.pos++ {
		switch c := s.all[s.pos]; c {
		case ' ', '\n', '\r', '\t':
		default:
			return c
		}
	}
	return 0
}

// take consumes a byte, if it is the next.
func (s *jsonSource) take(c byte) bool {
	if s.peek() != c || s.pos == len(s.all) {
		return false
	}
	s.pos++
	return true
}

// unexpected returns the error for what is next.
func (s *jsonSource) unexpected(expected string) error {
	if s.peek(); s.pos == len(s.all) {
		return invalid(s, "the file ends, expected %s", expected)
	}
	return invalid(s, "found %q, expected %s", s.all[s.pos:min(s.pos+12, len(s.all))], expected)
}

// list calls each for what is between two brackets, separated by commas.
func (s *jsonSource) list(from, to byte, each func() error) error {
	if !s.take(from) {
		return s.unexpected(strconv.QuoteRune(rune(from)))
	}
	if s.depth++; s.depth > maxNesting {
		return invalid(s, "found more than %d containers inside each other", maxNesting)
	}
	defer func() { s.depth-- }()
	if s.take(to) {
		return nil
	}
	for {
		if err := each(); err != nil {
			return err
		}
		if s.take(to) {
			return nil
		}
		if !s.take(',') {
			return s.unexpected("',' or " + strconv.QuoteRune(rune(to)))
		}
	}
}

func (s *jsonSource) object(field func(key string) error) error {
	return s.list('{', '}', func() error {
		key, err := s.quoted()
		if err != nil {
			return err
		}
		if !s.take(':') {
			return s.unexpected("':'")
		}
		return field(key)
	})
}

func (s *jsonSource) array(each func() error) error { return s.list('[', ']', each) }

func (s *jsonSource) numbers(_ func(n int), add func(x float64)) error {
	return s.list('[', ']', func() error {
		from := s.pos
		switch word := s.word(); word {
		case "true":
			add(1)
		case "false":
			add(0)
		default:
			x, err := strconv.ParseFloat(word, 64)
			if err != nil && !errors.Is(err, strconv.ErrRange) { // beyond the range it is infinite, as in XGBoost
				s.pos = from
				return s.unexpected("a number")
			}
			add(x)
		}
		return nil
	})
}

// word consumes and returns a number or a literal: everything up to white space or punctuation.
func (s *jsonSource) word() string {
	s.peek()
	from := s.pos
	for s.pos < len(s.all) && strings.IndexByte(" \n\r\t,:]}[{\"", s.all[s.pos]) < 0 {
		s.pos++
	}
	return s.all[from:s.pos]
}

// quoted consumes and returns a string.
func (s *jsonSource) quoted() (string, error) {
	if !s.take('"') {
		return "", s.unexpected("a string")
	}
	from := s.pos
	for ; s.pos < len(s.all); s.pos++ {
		switch s.all[s.pos] {
		case '\\':
			s.pos++
		case '"':
			s.pos++
			return s.unescape(s.all[from : s.pos-1])
		}
	}
	s.pos = len(s.all)
	return "", s.unexpected("the end of a string")
}

// unescape decodes the escapes of a string.
func (s *jsonSource) unescape(text string) (string, error) {
	if strings.IndexByte(text, '\\') < 0 {
		return text, nil
	}
	var out string
	if err := json.Unmarshal([]byte(`"`+text+`"`), &out); err != nil {
		return "", invalid(s, "the string %.40q cannot be read: %v", text, err)
	}
	return out, nil
}

func (s *jsonSource) text() (string, error) {
	if s.peek() == '"' {
		return s.quoted()
	}
	if word := s.word(); word != "" {
		return word, nil
	}
	return "", s.unexpected("a string")
}

func (s *jsonSource) skip() error {
	switch s.peek() {
	case '{':
		return s.object(func(string) error { return s.skip() })
	case '[':
		return s.array(s.skip)
	}
	_, err := s.text()
	return err
}

func (s *jsonSource) end() error {
	if s.peek(); s.pos < len(s.all) {
		return s.unexpected("the end of the file")
	}
	return nil
}

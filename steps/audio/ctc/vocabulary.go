package ctc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tutti-server/tutti/steps"
)

// vocabulary has the tokens of a recogniser.
type vocabulary struct {
	tokens    [][]byte // by index; nil for those that have no text
	blank     int
	delimiter int // -1 for none
}

// wordStart begins the tokens of SentencePiece that begin a word.
const wordStart = "▁"

// readVocabulary reads the file and the parameters that name tokens.
func readVocabulary(s *steps.Settings) (*vocabulary, error) {
	name := s.Params["vocabulary_file"]
	path, err := s.Find(name)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the vocabulary of model '%s': %w", s.Model, err)
	}
	if !utf8.Valid(text) {
		return nil, fmt.Errorf("vocabulary_file '%s' of model '%s': expected UTF-8", name, s.Model)
	}
	tokens, err := parseTokens(text)
	if err != nil {
		return nil, fmt.Errorf("vocabulary_file '%s' of model '%s': %w", name, s.Model, err)
	}
	v := &vocabulary{delimiter: -1}
	if v.blank = find(tokens, s.Params["blank"]); v.blank < 0 {
		return nil, s.Wrong("blank", "a token of vocabulary_file, or # and the index of one")
	}
	if d := s.Params["word_delimiter"]; d != "" {
		v.delimiter = slices.Index(tokens, d)
	}
	special := strings.Fields(s.Params["special_tokens"])
	for i, t := range tokens {
		var word []byte
		switch {
		case i == v.blank || slices.Contains(special, t):
		case i == v.delimiter:
			word = []byte(" ")
		default:
			word = []byte(strings.ReplaceAll(t, wordStart, " "))
		}
		v.tokens = append(v.tokens, word)
	}
	return v, nil
}

// find returns the index of a token, or of #N; -1 if there is none.
func find(tokens []string, name string) int {
	if i := slices.Index(tokens, name); i >= 0 {
		return i
	}
	if n, err := strconv.Atoi(strings.TrimPrefix(name, "#")); err == nil && strings.HasPrefix(name, "#") && n >= 0 && n < len(tokens) {
		return n
	}
	return -1
}

// parseTokens reads a JSON object of tokens and indices, or a token per line.
func parseTokens(text []byte) ([]string, error) {
	if trimmed := bytes.TrimLeft(text, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '{' {
		lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
		for i := range lines {
			lines[i] = strings.TrimSuffix(lines[i], "\r")
		}
		return lines, nil
	}
	var indices map[string]int
	if err := json.Unmarshal(text, &indices); err != nil {
		return nil, fmt.Errorf("expected a JSON object of tokens and indices: %w", err)
	}
	tokens, set := make([]string, len(indices)), make([]bool, len(indices))
	for t, i := range indices {
		if i < 0 || i >= len(tokens) || set[i] {
			return nil, fmt.Errorf("expected the indices 0 to %d, each once, found %d for token %q", len(tokens)-1, i, t)
		}
		tokens[i], set[i] = t, true
	}
	return tokens, nil
}

// text appends the text of a path to dst, without spaces around it. With single, spaces never follow each other.
func (v *vocabulary) text(dst []byte, path []int32, single bool) []byte {
	for _, t := range path {
		dst = append(dst, v.tokens[t]...)
	}
	trimmed := bytes.TrimSpace(dst)
	if !single {
		return trimmed
	}
	out, space := trimmed[:0], false
	for _, c := range trimmed {
		if c != ' ' || !space {
			out = append(out, c)
		}
		space = c == ' '
	}
	return out
}

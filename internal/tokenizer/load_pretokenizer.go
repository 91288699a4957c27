package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"unicode"
	"unicode/utf8"
)

func (t *Tokenizer) loadPreTokenizer(d *Definition) error {
	t.preTokenizer = sequence(nil)
	if absent(d.PreTokenizer) {
		return nil
	}
	p, err := t.preTokenizerOf(d.PreTokenizer, 0)
	if err != nil {
		return err
	}
	t.preTokenizer = p
	if _, direct := p.(*metaspace); direct && t.normalizer == (verbatim{}) {
		t.mustTrack = false // the start of the text is known without tracking
	}
	return nil
}

func (t *Tokenizer) preTokenizerOf(raw json.RawMessage, depth int) (preTokenizer, error) {
	name, err := kind(raw, "pre_tokenizer")
	if err != nil {
		return nil, err
	}
	if depth > maxDepth {
		return nil, unsupported("pre_tokenizer sequences so deep")
	}
	if plain, ok := plainPreTokenizers[name]; ok {
		return plain(), strict(raw, name, &struct {
			Type string `json:"type"`
		}{})
	}
	switch name {
	case "Sequence":
		return t.sequenceOf(raw, depth)
	case "Metaspace":
		return t.metaspaceOf(raw)
	case "ByteLevel":
		return byteLevelOf(raw)
	case "Split":
		return splitOf(raw)
	case "Punctuation", "Digits", "CharDelimiterSplit", "FixedLength":
		return classSplitOf(name, raw)
	default:
		return nil, unsupported(name)
	}
}

// plainPreTokenizers are the pre-tokenizers without options.
var plainPreTokenizers = map[string]func() preTokenizer{
	"BertPreTokenizer": func() preTokenizer { return newBertPreTokenizer() },
	"Whitespace":       func() preTokenizer { return &split{newWordPattern(), removed, true} },
	"WhitespaceSplit": func() preTokenizer {
		return &split{newClassPattern(func(r rune) bool { return unicode.Is(unicode.White_Space, r) }), removed, false}
	},
	"UnicodeScripts": func() preTokenizer { return &split{scriptPattern{newClassifier(scriptOf)}, isolated, false} },
}

func (t *Tokenizer) sequenceOf(raw json.RawMessage, depth int) (preTokenizer, error) {
	list, err := sequenceOf(raw, "pretokenizers")
	if err != nil {
		return nil, err
	}
	var out sequence
	for _, r := range list {
		p, err := t.preTokenizerOf(r, depth+1)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

func (t *Tokenizer) metaspaceOf(raw json.RawMessage) (preTokenizer, error) {
	c := struct {
		Type        string  `json:"type"`
		Replacement string  `json:"replacement"`
		Prefix      *bool   `json:"add_prefix_space"`
		Scheme      *string `json:"prepend_scheme"`
		Split       *bool   `json:"split"`
		Text        *string `json:"str_rep"`
	}{}
	if err := strict(raw, "Metaspace", &c); err != nil {
		return nil, err
	}
	if _, n := utf8.DecodeRuneInString(c.Replacement); n == 0 || n != len(c.Replacement) {
		return nil, fmt.Errorf("tokenizer component 'Metaspace': replacement '%s' is not one character", c.Replacement)
	}
	m := &metaspace{replacement: c.Replacement, cut: c.Split == nil || *c.Split}
	switch {
	case c.Prefix != nil && !*c.Prefix && (c.Scheme == nil || *c.Scheme != "never"):
		return nil, errors.New("tokenizer component 'Metaspace': add_prefix_space does not match prepend_scheme")
	case c.Scheme == nil || *c.Scheme == "always":
		m.always = true
	case *c.Scheme == "first":
		m.first, t.mustTrack = true, true
	case *c.Scheme != "never":
		return nil, unsupported("Metaspace with prepend_scheme " + *c.Scheme)
	}
	return m, nil
}

func byteLevelOf(raw json.RawMessage) (preTokenizer, error) {
	c := struct {
		Type   string `json:"type"`
		Prefix bool   `json:"add_prefix_space"`
		Trim   bool   `json:"trim_offsets"`
		Regex  *bool  `json:"use_regex"`
	}{}
	if err := strict(raw, "ByteLevel", &c); err != nil {
		return nil, err
	}
	p := &byteLevel{prefix: c.Prefix}
	if c.Regex == nil || *c.Regex {
		p.pattern = gpt2Pattern{newLetterTable()}
	}
	return p, nil
}

func knownBehavior(b string) error {
	switch b {
	case removed, isolated, mergedWithPrevious, mergedWithNext, contiguous:
		return nil
	}
	return unsupported("split behavior " + b)
}

func splitOf(raw json.RawMessage) (preTokenizer, error) {
	var c struct {
		Type     string       `json:"type"`
		Pattern  patternField `json:"pattern"`
		Behavior string       `json:"behavior"`
		Invert   bool         `json:"invert"`
	}
	if err := strict(raw, "Split", &c); err != nil {
		return nil, err
	}
	if err := knownBehavior(c.Behavior); err != nil {
		return nil, err
	}
	p, err := c.Pattern.compile()
	if err != nil {
		return nil, fmt.Errorf("tokenizer component 'Split': %w", err)
	}
	return &split{p, c.Behavior, c.Invert}, nil
}

// classSplitOf builds the pre-tokenizers that depend on single code points.
func classSplitOf(name string, raw json.RawMessage) (preTokenizer, error) {
	c := struct {
		Type       string  `json:"type"`
		Behavior   *string `json:"behavior"`
		Individual bool    `json:"individual_digits"`
		Delimiter  string  `json:"delimiter"`
		Length     *int    `json:"length"`
	}{}
	if err := strict(raw, name, &c); err != nil {
		return nil, err
	}
	switch name {
	case "Punctuation":
		behavior := isolated
		if c.Behavior != nil {
			behavior = *c.Behavior
		}
		return &split{newClassPattern(classes().punctuation.Has), behavior, false}, knownBehavior(behavior)
	case "Digits":
		behavior := contiguous
		if c.Individual {
			behavior = isolated
		}
		return &split{newClassPattern(classes().numeric.Has), behavior, false}, nil
	case "CharDelimiterSplit":
		if _, n := utf8.DecodeRuneInString(c.Delimiter); n == 0 || n != len(c.Delimiter) {
			return nil, fmt.Errorf("tokenizer component '%s': delimiter '%s' is not one character", name, c.Delimiter)
		}
		return &split{literal(c.Delimiter), removed, false}, nil
	case "FixedLength":
		length := 5
		if c.Length != nil {
			length = *c.Length
		}
		if length < 1 {
			return nil, fmt.Errorf("tokenizer component '%s': length is %d, expected at least 1", name, length)
		}
		return &split{lengthPattern(length), isolated, false}, nil
	default:
		return nil, unsupported(name)
	}
}

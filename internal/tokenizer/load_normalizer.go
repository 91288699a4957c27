package tokenizer

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
)

func (t *Tokenizer) loadNormalizer(d *Definition) error {
	name, err := kind(d.Normalizer, "normalizer")
	if err != nil {
		return err
	}
	if name == "BertNormalizer" {
		t.normalizer, err = bertOf(d.Normalizer)
		return err
	}
	c := &chain{first: verbatim{}}
	if name != "" {
		if err := c.load(d.Normalizer, 0); err != nil {
			return err
		}
	}
	t.normalizer = c
	if len(c.passes) == 0 {
		t.normalizer = c.first
	}
	return nil
}

// bertOptions are the options of BertNormalizer.
type bertOptions struct {
	Type  string `json:"type"`
	Clean bool   `json:"clean_text"`
	CJK   bool   `json:"handle_chinese_chars"`
	Strip *bool  `json:"strip_accents"`
	Lower bool   `json:"lowercase"`
}

func (c *bertOptions) strip() bool {
	if c.Strip != nil {
		return *c.Strip
	}
	return c.Lower // as the reference when the option is null
}

func bertOf(raw json.RawMessage) (normalizer, error) {
	var c bertOptions
	if err := strict(raw, "BertNormalizer", &c); err != nil {
		return nil, err
	}
	return newBertNormalizer(c.Clean, c.CJK, c.strip(), c.Lower), nil
}

// maxDepth is the deepest nesting of sequences.
const maxDepth = 20

// load appends the passes of a normalizer.
func (c *chain) load(raw json.RawMessage, depth int) error {
	name, err := kind(raw, "normalizer")
	switch {
	case err != nil:
		return err
	case depth > maxDepth:
		return unsupported("normalizer sequences so deep")
	case name == "Sequence":
		return c.loadSequence(raw, depth)
	case name == "BertNormalizer":
		return c.loadBert(raw)
	}
	p, err := passOf(name, raw)
	if err != nil {
		return err
	}
	c.passes = append(c.passes, p)
	return nil
}

func (c *chain) loadSequence(raw json.RawMessage, depth int) error {
	list, err := sequenceOf(raw, "normalizers")
	if err != nil {
		return err
	}
	for _, r := range list {
		if err := c.load(r, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// loadBert uses the one-pass normalizer at the start of a sequence, and separate passes later on.
func (c *chain) loadBert(raw json.RawMessage) error {
	var o bertOptions
	if err := strict(raw, "BertNormalizer", &o); err != nil {
		return err
	}
	if _, plain := c.first.(verbatim); plain && len(c.passes) == 0 {
		c.first = newBertNormalizer(o.Clean, o.CJK, o.strip(), o.Lower)
		return nil
	}
	if o.Clean {
		c.passes = append(c.passes, mapping(cleanText))
	}
	if o.CJK {
		c.passes = append(c.passes, ideographs{})
	}
	if o.strip() {
		c.passes = append(c.passes, newForm(false, false), mapping(dropNonSpacing))
	}
	if o.Lower {
		c.passes = append(c.passes, lowercase{})
	}
	return nil
}

// plainPasses are the normalizers without options.
var plainPasses = map[string]func() pass{
	"NFC":          func() pass { return newForm(false, true) },
	"NFD":          func() pass { return newForm(false, false) },
	"NFKC":         func() pass { return newForm(true, true) },
	"NFKD":         func() pass { return newForm(true, false) },
	"Lowercase":    func() pass { return lowercase{} },
	"StripAccents": func() pass { return mapping(stripAccents) },
	"Nmt":          func() pass { return mapping(nmt) },
	"ByteLevel":    func() pass { return byteLevelPass{} },
}

func passOf(name string, raw json.RawMessage) (pass, error) {
	if plain, ok := plainPasses[name]; ok {
		return plain(), strict(raw, name, &struct {
			Type string `json:"type"`
		}{})
	}
	switch name {
	case "Strip":
		var c struct {
			Type  string `json:"type"`
			Left  bool   `json:"strip_left"`
			Right bool   `json:"strip_right"`
		}
		err := strict(raw, name, &c)
		return strip{c.Left, c.Right}, err
	case "Prepend":
		var c struct {
			Type    string `json:"type"`
			Prepend string `json:"prepend"`
		}
		err := strict(raw, name, &c)
		return prepend(c.Prepend), err
	case "Replace":
		return replaceOf(raw)
	case "Precompiled":
		return precompiledOf(raw)
	default:
		return nil, unsupported(name)
	}
}

func precompiledOf(raw json.RawMessage) (pass, error) {
	var c struct {
		Type string `json:"type"`
		Map  string `json:"precompiled_charsmap"`
	}
	if err := strict(raw, "Precompiled", &c); err != nil {
		return nil, err
	}
	data, err := base64.StdEncoding.DecodeString(c.Map)
	if err != nil {
		return nil, fmt.Errorf("tokenizer component 'Precompiled': %w", err)
	}
	p, err := newPrecompiled(data)
	if err != nil {
		return nil, fmt.Errorf("tokenizer component 'Precompiled': %w", err)
	}
	return p, nil
}

func replaceOf(raw json.RawMessage) (pass, error) {
	var c struct {
		Type    string       `json:"type"`
		Pattern patternField `json:"pattern"`
		Content string       `json:"content"`
	}
	if err := strict(raw, "Replace", &c); err != nil {
		return nil, err
	}
	p, err := c.Pattern.compile()
	if err != nil {
		return nil, fmt.Errorf("tokenizer component 'Replace': %w", err)
	}
	return &replace{p, c.Content}, nil
}

// patternField is {"String": s} or {"Regex": s}.
type patternField struct{ String, Regex *string }

func (f *patternField) compile() (pattern, error) {
	switch {
	case f.String != nil && *f.String != "":
		return literal(*f.String), nil
	case f.String != nil:
		return compiled("")
	case f.Regex == nil:
		return nil, errors.New("a pattern is neither String nor Regex")
	}
	if *f.Regex == gpt2Text {
		return gpt2Pattern{newLetterTable()}, nil
	}
	if digits, ok := llamaPatterns[*f.Regex]; ok {
		return llamaPattern{newLetterTable(), digits}, nil
	}
	return compiled(*f.Regex)
}

// gpt2Text is the pattern of ByteLevel.
const gpt2Text = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

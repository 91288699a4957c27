package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// maxDecoders is the largest number of decoders in a file, nested ones included.
const maxDecoders = 64

func (t *Tokenizer) loadDecoder(d *Definition) error {
	t.detokenizer = detokenizer{spaced: absent(d.Decoder)}
	if t.detokenizer.spaced {
		return nil
	}
	return t.detokenizer.load(d.Decoder, 0)
}

// load appends a decoder, or those of a sequence, to the chain.
func (d *detokenizer) load(raw json.RawMessage, depth int) error {
	name, err := kind(raw, "decoder")
	if err != nil {
		return err
	}
	if len(d.chain) >= maxDecoders || depth >= maxDecoders {
		return fmt.Errorf("tokenizer decoder has more than %d parts", maxDecoders)
	}
	if name == "Sequence" {
		return d.loadSequence(raw, depth)
	}
	made, err := newDecoder(raw, name)
	if err != nil {
		return err
	}
	d.chain = append(d.chain, made)
	return nil
}

func (d *detokenizer) loadSequence(raw json.RawMessage, depth int) error {
	list, err := sequenceOf(raw, "decoders")
	if err != nil {
		return err
	}
	for _, one := range list {
		if err := d.load(one, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func newDecoder(raw json.RawMessage, name string) (decoder, error) {
	switch name {
	case "ByteLevel":
		return newByteLevelDecoder(), nil // its options concern encoding
	case "WordPiece":
		return newWordPieceDecoder(raw)
	case "Metaspace":
		return newMetaspaceDecoder(raw)
	case "BPEDecoder":
		return newSuffixDecoder(raw)
	case "CTC":
		return newCTCDecoder(raw)
	case "Fuse":
		return fuseDecoder{}, nil
	case "Strip":
		return newStripDecoder(raw)
	case "Replace":
		return newReplaceDecoder(raw)
	case "ByteFallback":
		return byteDecoder{}, nil
	default:
		return nil, unsupported(name)
	}
}

func newWordPieceDecoder(raw json.RawMessage) (decoder, error) {
	c := struct {
		Type    string `json:"type"`
		Prefix  string `json:"prefix"`
		Cleanup bool   `json:"cleanup"`
	}{}
	if err := strict(raw, "WordPiece", &c); err != nil {
		return nil, err
	}
	return &wordPieceDecoder{[]byte(c.Prefix), c.Cleanup}, nil
}

func newMetaspaceDecoder(raw json.RawMessage) (decoder, error) {
	c := struct {
		Type        string `json:"type"`
		Replacement string `json:"replacement"`
		Scheme      string `json:"prepend_scheme"`
		Split       *bool  `json:"split"`
		AddPrefix   *bool  `json:"add_prefix_space"` // of files without prepend_scheme
		Text        string `json:"str_rep"`          // of the same files, equal to replacement
	}{Scheme: "always"}
	if err := strict(raw, "Metaspace", &c); err != nil {
		return nil, err
	}
	if utf8.RuneCountInString(c.Replacement) != 1 {
		return nil, fmt.Errorf("tokenizer component 'Metaspace' has replacement '%s', expected one character", c.Replacement)
	}
	switch c.Scheme {
	case "always", "first", "never":
	default:
		return nil, fmt.Errorf("tokenizer component 'Metaspace' has prepend_scheme '%s', expected always, first or never", c.Scheme)
	}
	if c.AddPrefix != nil && !*c.AddPrefix {
		c.Scheme = "never"
	}
	return &metaspaceDecoder{[]byte(c.Replacement), c.Scheme != "never"}, nil
}

func newSuffixDecoder(raw json.RawMessage) (decoder, error) {
	c := struct {
		Type   string `json:"type"`
		Suffix string `json:"suffix"`
	}{}
	if err := strict(raw, "BPEDecoder", &c); err != nil {
		return nil, err
	}
	if c.Suffix == "" {
		return nil, errors.New("tokenizer component 'BPEDecoder' has an empty suffix")
	}
	return &suffixDecoder{c.Suffix}, nil
}

func newCTCDecoder(raw json.RawMessage) (decoder, error) {
	c := struct {
		Type      string `json:"type"`
		Pad       string `json:"pad_token"`
		Delimiter string `json:"word_delimiter_token"`
		Cleanup   bool   `json:"cleanup"`
	}{}
	if err := strict(raw, "CTC", &c); err != nil {
		return nil, err
	}
	if c.Pad == "" || c.Delimiter == "" {
		return nil, errors.New("tokenizer component 'CTC' has an empty pad_token or word_delimiter_token")
	}
	return &ctcDecoder{c.Pad, c.Delimiter, c.Cleanup}, nil
}

func newStripDecoder(raw json.RawMessage) (decoder, error) {
	c := struct {
		Type    string `json:"type"`
		Content string `json:"content"`
		Start   int    `json:"start"`
		Stop    int    `json:"stop"`
	}{}
	if err := strict(raw, "Strip", &c); err != nil {
		return nil, err
	}
	if utf8.RuneCountInString(c.Content) != 1 || c.Start < 0 || c.Stop < 0 {
		return nil, fmt.Errorf("tokenizer component 'Strip' has content '%s', start %d and stop %d, expected one character and at least 0",
			c.Content, c.Start, c.Stop)
	}
	return &stripDecoder{[]byte(c.Content), c.Start, c.Stop}, nil
}

func newReplaceDecoder(raw json.RawMessage) (decoder, error) {
	c := struct {
		Type    string `json:"type"`
		Pattern struct{ String, Regex *string }
		Content string `json:"content"`
	}{}
	if err := strict(raw, "Replace", &c); err != nil {
		return nil, err
	}
	switch p := c.Pattern; {
	case p.String != nil && *p.String != "":
		return &replaceDecoder{*p.String, c.Content}, nil
	case p.Regex != nil:
		return newRegexDecoder(*p.Regex, c.Content)
	default:
		return nil, errors.New("tokenizer component 'Replace' has no pattern")
	}
}

// newRegexDecoder replaces the matches of a pattern.
func newRegexDecoder(string, string) (decoder, error) {
	return nil, unsupported("Replace with a regular expression in the decoder")
}

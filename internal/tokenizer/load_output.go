package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// Padding is the file's padding. Strategy is "BatchLongest" or {"Fixed": n}.
type Padding struct {
	Strategy  json.RawMessage `json:"strategy"`
	Direction string          `json:"direction"`
	Multiple  int             `json:"pad_to_multiple_of"`
	ID        int32           `json:"pad_id"`
	TypeID    int32           `json:"pad_type_id"`
	Token     string          `json:"pad_token"`
}

// maxPadding is the largest length that a file may pad every text to.
const maxPadding = 1 << 20

func (t *Tokenizer) loadPadding(f *Definition) error {
	if id, ok := t.model.id("[PAD]"); ok {
		t.padID = id
	}
	c := f.Padding
	if c == nil {
		return nil
	}
	p := &padding{multiple: c.Multiple, id: c.ID, typeID: c.TypeID}
	var fixed struct{ Fixed int }
	switch {
	case string(c.Strategy) == `"BatchLongest"`:
	case json.Unmarshal(c.Strategy, &fixed) == nil && fixed.Fixed > 0:
		p.fixed = fixed.Fixed
	default:
		return fmt.Errorf("tokenizer padding strategy %s is not supported", c.Strategy)
	}
	if p.fixed > maxPadding || p.multiple < 0 || p.multiple > maxPadding || p.id < 0 {
		return fmt.Errorf("tokenizer padding to %d, a multiple of %d, with id %d: expected 0 to %d", p.fixed, p.multiple, p.id, maxPadding)
	}
	if p.left = c.Direction == left; !p.left && c.Direction != right {
		return fmt.Errorf("tokenizer padding direction '%s' is not supported", c.Direction)
	}
	t.padding, t.padID = p, p.id
	return nil
}

func (t *Tokenizer) loadTruncation(f *Definition) error {
	c := f.Truncation
	if c == nil {
		return nil
	}
	if c.Direction == "" {
		c.Direction = right
	}
	switch {
	case c.Stride < 0:
		return fmt.Errorf("tokenizer truncation stride is %d, expected at least 0", c.Stride)
	case c.Strategy != longestFirst && c.Strategy != onlyFirst && c.Strategy != onlySecond:
		return fmt.Errorf("tokenizer truncation strategy '%s' is not supported", c.Strategy)
	case c.Direction != left && c.Direction != right:
		return fmt.Errorf("tokenizer truncation direction '%s' is not supported", c.Direction)
	}
	t.truncation = c
	return t.checkTruncation()
}

// loadTemplate reads the post-processors: at most one that adds tokens, and any number that trim offsets.
func (t *Tokenizer) loadTemplate(d *Definition) error {
	list, err := postProcessorSection.components(d.PostProcessor)
	if err != nil {
		return err
	}
	t.template = d.template
	for _, c := range list {
		if err := t.loadProcessor(c); err != nil {
			return err
		}
	}
	if t.template == nil {
		t.template = &template{single: []templatePart{{sequence: 0}}, pair: []templatePart{{sequence: 0}, {sequence: 1, typeID: 1}}}
	}
	return nil
}

// loadProcessor reads a post-processor. One that is null has no type.
func (t *Tokenizer) loadProcessor(c component) error {
	switch c.kind {
	case "TemplateProcessing", "BertProcessing", "RobertaProcessing":
		if t.template != nil {
			return unsupported("post_processor Sequence with two that add tokens")
		}
	}
	switch c.kind {
	case "":
		return nil
	case "TemplateProcessing":
		return t.loadTemplateProcessing(c.options)
	case "BertProcessing":
		var o markOptions
		if err := strict(c.options, c.kind, &o); err != nil {
			return err
		}
		return t.loadMarks(c.kind, &o, false)
	case "RobertaProcessing":
		var o struct {
			markOptions

			Trim   bool `json:"trim_offsets"`
			Prefix bool `json:"add_prefix_space"`
		}
		if err := strict(c.options, c.kind, &o); err != nil {
			return err
		}
		if o.Trim {
			t.addTrim(o.Prefix)
		}
		return t.loadMarks(c.kind, &o.markOptions, true)
	case "ByteLevel":
		var o byteLevelOptions
		err := strict(c.options, c.kind, &o)
		if o.Trim && err == nil {
			t.addTrim(o.Prefix)
		}
		return err
	default:
		return unsupported(c.kind)
	}
}

// markOptions are the special tokens of BertProcessing and RobertaProcessing, each as [text, id].
type markOptions struct {
	Sep [2]json.RawMessage `json:"sep"`
	Cls [2]json.RawMessage `json:"cls"`
}

// loadMarks builds the templates "[CLS] A [SEP]" and "[CLS] A [SEP] B [SEP]" or, flat, "<s> A </s>" and
// "<s> A </s></s> B </s>", all of type 0.
func (t *Tokenizer) loadMarks(name string, o *markOptions, flat bool) error {
	var sep, cls int32
	if json.Unmarshal(o.Sep[1], &sep) != nil || json.Unmarshal(o.Cls[1], &cls) != nil {
		return fmt.Errorf("tokenizer component '%s' needs sep and cls as [text, id]", name)
	}
	mark := func(id, typeID int32) templatePart { return templatePart{specialPart, []int32{id}, typeID} }
	single, second := []templatePart{mark(cls, 0), {sequence: 0}, mark(sep, 0)}, int32(1)
	pair := single[:3:3]
	if flat {
		pair, second = append(pair, mark(sep, 0)), 0
	}
	pair = append(pair, templatePart{sequence: 1, typeID: second}, mark(sep, second))
	t.template = &template{single, pair, [2]int{1, int(1 - second)}, flat}
	return nil
}

// templatePiece is one element of a TemplateProcessing list: a special token or a sequence.
type templatePiece struct {
	SpecialToken, Sequence *struct {
		ID     string `json:"id"`
		TypeID int32  `json:"type_id"`
	}
}

func (t *Tokenizer) loadTemplateProcessing(raw json.RawMessage) error {
	var c struct {
		Single  []templatePiece `json:"single"`
		Pair    []templatePiece `json:"pair"`
		Special map[string]struct {
			IDs []int32 `json:"ids"`
		} `json:"special_tokens"`
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return fmt.Errorf("tokenizer component 'TemplateProcessing': %w", err)
	}
	var out [2][]templatePart
	for i, list := range [][]templatePiece{c.Single, c.Pair} {
		for _, p := range list {
			switch {
			case p.SpecialToken != nil && c.Special[p.SpecialToken.ID].IDs != nil:
				out[i] = append(out[i], templatePart{specialPart, c.Special[p.SpecialToken.ID].IDs, p.SpecialToken.TypeID})
			case p.SpecialToken != nil:
				return fmt.Errorf("tokenizer template names special token '%s', which it does not declare", p.SpecialToken.ID)
			case p.Sequence != nil && p.Sequence.ID == "A":
				out[i] = append(out[i], templatePart{sequence: 0, typeID: p.Sequence.TypeID})
			case p.Sequence != nil && p.Sequence.ID == "B" && i > 0:
				out[i] = append(out[i], templatePart{sequence: 1, typeID: p.Sequence.TypeID})
			default:
				return errors.New("tokenizer template has a part that is neither a special token nor a sequence of its input")
			}
		}
	}
	t.template = &template{single: out[0], pair: out[1]}
	return nil
}

func (t *Tokenizer) loadDecoder(d *Definition) error {
	t.detokenizer.spaced = absent(d.Decoder)
	list, err := decoderSection.components(d.Decoder)
	if err != nil {
		return err
	}
	for _, c := range list {
		made, err := decoders.build(c)
		if err != nil {
			return err
		}
		t.detokenizer.chain = append(t.detokenizer.chain, made)
	}
	return nil
}

// decoders do not read the options that concern encoding.
var decoders = makers[decoder]{
	"ByteLevel":    func(component) (decoder, error) { return byteLevelDecoder{}, nil },
	"Fuse":         func(component) (decoder, error) { return fuseDecoder{}, nil },
	"ByteFallback": func(component) (decoder, error) { return byteDecoder{}, nil },
	"WordPiece":    with(func(o *wordPieceDecoder) (decoder, error) { return o, nil }),
	"Metaspace": with(func(o *metaspaceOptions) (decoder, error) {
		scheme := or(o.Scheme, "always")
		if utf8.RuneCountInString(o.Replacement) != 1 {
			return nil, fmt.Errorf("tokenizer component 'Metaspace' has replacement '%s', expected one character", o.Replacement)
		}
		if scheme != "always" && scheme != "first" && scheme != "never" {
			return nil, fmt.Errorf("tokenizer component 'Metaspace' has prepend_scheme '%s', expected always, first or never", scheme)
		}
		return &metaspaceDecoder{[]byte(o.Replacement), scheme != "never" && or(o.Prefix, true)}, nil
	}),
	"BPEDecoder": with(func(o *suffixDecoder) (decoder, error) {
		if o.Suffix == "" {
			return nil, errors.New("tokenizer component 'BPEDecoder' has an empty suffix")
		}
		return o, nil
	}),
	"CTC": with(func(o *ctcDecoder) (decoder, error) {
		if o.Pad == "" || o.Delimiter == "" {
			return nil, errors.New("tokenizer component 'CTC' has an empty pad_token or word_delimiter_token")
		}
		return o, nil
	}),
	"Strip": with(func(o *stripDecoder) (decoder, error) {
		if utf8.RuneCountInString(o.Content) != 1 || o.Start < 0 || o.Stop < 0 {
			return nil, fmt.Errorf("tokenizer component 'Strip' has content '%s', start %d and stop %d, expected one character and at least 0",
				o.Content, o.Start, o.Stop)
		}
		return o, nil
	}),
	"Replace": with(func(o *replaceOptions) (decoder, error) {
		switch p := o.Pattern; {
		case p.String != nil && *p.String != "":
			return &replaceDecoder{*p.String, o.Content}, nil
		case p.Regex != nil:
			return nil, unsupported("Replace with a regular expression in the decoder")
		default:
			return nil, errors.New("tokenizer component 'Replace' has no pattern")
		}
	}),
}

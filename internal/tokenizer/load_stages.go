package tokenizer

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"unicode"
	"unicode/utf8"
)

func (t *Tokenizer) loadNormalizer(d *Definition) error {
	list, err := normalizerSection.components(d.Normalizer)
	if err != nil {
		return err
	}
	t.normalizer = verbatim{}
	for _, c := range list {
		if c.kind == "BertNormalizer" {
			err = t.loadBert(c)
		} else {
			var p pass
			p, err = passes.build(c)
			t.passes = append(t.passes, p)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// loadBert uses the one-pass normalizer at the start of a sequence, and separate passes later on.
func (t *Tokenizer) loadBert(c component) error {
	var o struct {
		Clean bool  `json:"clean_text"`
		CJK   bool  `json:"handle_chinese_chars"`
		Strip *bool `json:"strip_accents"`
		Lower bool  `json:"lowercase"`
	}
	if err := strict(c.options, c.kind, &o); err != nil {
		return err
	}
	strip := o.Lower // as the reference when the option is null
	if o.Strip != nil {
		strip = *o.Strip
	}
	if t.normalizer == (verbatim{}) && len(t.passes) == 0 {
		t.normalizer = newBertNormalizer(o.Clean, o.CJK, strip, o.Lower)
		return nil
	}
	if o.Clean {
		t.passes = append(t.passes, mapping(cleanText))
	}
	if o.CJK {
		t.passes = append(t.passes, ideographs{})
	}
	if strip {
		t.passes = append(t.passes, newForm(false, false), mapping(dropNonSpacing))
	}
	if o.Lower {
		t.passes = append(t.passes, lowercase{})
	}
	return nil
}

// passes are the normalizers but BertNormalizer.
var passes = makers[pass]{
	"NFC":          plain(func() pass { return newForm(false, true) }),
	"NFD":          plain(func() pass { return newForm(false, false) }),
	"NFKC":         plain(func() pass { return newForm(true, true) }),
	"NFKD":         plain(func() pass { return newForm(true, false) }),
	"Lowercase":    plain(func() pass { return lowercase{} }),
	"StripAccents": plain(func() pass { return mapping(stripAccents) }),
	"Nmt":          plain(func() pass { return mapping(nmt) }),
	"ByteLevel":    plain(func() pass { return byteLevelPass{} }),
	"Strip":        with(func(o *strip) (pass, error) { return o, nil }),
	"Prepend":      with(func(o *prepend) (pass, error) { return o, nil }),
	"Replace": with(func(o *replaceOptions) (pass, error) {
		p, err := o.Pattern.compile("Replace")
		return &replace{p, o.Content}, err
	}),
	"Precompiled": with(func(o *struct {
		Map string `json:"precompiled_charsmap"`
	},
	) (out pass, err error) {
		data, err := base64.StdEncoding.DecodeString(o.Map)
		if err == nil {
			out, err = newPrecompiled(data)
		}
		if err != nil {
			return nil, fmt.Errorf("tokenizer component 'Precompiled': %w", err)
		}
		return out, nil
	}),
}

// replaceOptions are those of the normalizer and of the decoder.
type replaceOptions struct {
	Pattern patternField `json:"pattern"`
	Content string       `json:"content"`
}

// patternField is {"String": s} or {"Regex": s}.
type patternField struct{ String, Regex *string }

// compile returns the pattern of a component.
func (f *patternField) compile(component string) (p pattern, err error) {
	switch {
	case f.String != nil && *f.String != "":
		return literal(*f.String), nil
	case f.String != nil:
		p, err = compiled("")
	case f.Regex == nil:
		err = errors.New("a pattern is neither String nor Regex")
	case *f.Regex == gpt2Text:
		return gpt2Pattern{newLetterTable()}, nil
	case *f.Regex == llamaText:
		return llamaPattern{newLetterTable(), 3}, nil
	case *f.Regex == qwenText:
		return llamaPattern{newLetterTable(), 1}, nil
	default:
		p, err = compiled(*f.Regex)
	}
	if err != nil {
		return nil, fmt.Errorf("tokenizer component '%s': %w", component, err)
	}
	return p, nil
}

func (t *Tokenizer) loadPreTokenizer(d *Definition) error {
	list, err := preTokenizerSection.components(d.PreTokenizer)
	if err != nil {
		return err
	}
	t.preTokenizers = make([]preTokenizer, len(list))
	for i, one := range list {
		if t.preTokenizers[i], err = preTokenizers.build(one); err != nil {
			return err
		}
		// alone and without a normalizer, the start of the text is known without tracking
		if m, ok := t.preTokenizers[i].(*metaspace); ok && m.first && (len(list) > 1 || len(t.passes) > 0 || t.normalizer != (verbatim{})) {
			t.mustTrack = true
		}
	}
	return nil
}

// metaspaceOptions are those of the pre-tokenizer and of the decoder.
type metaspaceOptions struct {
	Replacement string  `json:"replacement"`
	Prefix      *bool   `json:"add_prefix_space"` // of files without prepend_scheme
	Scheme      *string `json:"prepend_scheme"`
	Split       *bool   `json:"split"`
	Text        *string `json:"str_rep"` // of the same files, equal to replacement
}

// byteLevelOptions are those of the pre-tokenizer and of the post-processor.
type byteLevelOptions struct {
	Prefix bool  `json:"add_prefix_space"`
	Trim   bool  `json:"trim_offsets"`
	Regex  *bool `json:"use_regex"`
}

// classOptions are those of the pre-tokenizers that depend on single code points.
type classOptions struct {
	Behavior   *string `json:"behavior"`
	Individual bool    `json:"individual_digits"`
	Delimiter  string  `json:"delimiter"`
	Length     *int    `json:"length"`
}

var preTokenizers = makers[preTokenizer]{
	"BertPreTokenizer": plain(func() preTokenizer { return newBertPreTokenizer() }),
	"Whitespace":       plain(func() preTokenizer { return &split{newWordPattern(), removed, true} }),
	"WhitespaceSplit": plain(func() preTokenizer {
		return &split{newClassPattern(unicode.IsSpace), removed, false}
	}),
	"UnicodeScripts": plain(func() preTokenizer { return &split{scriptPattern{newClassifier(scriptOf)}, isolated, false} }),
	"Metaspace":      with(newMetaspace),
	"ByteLevel": with(func(o *byteLevelOptions) (preTokenizer, error) {
		p := &byteLevel{prefix: o.Prefix}
		if or(o.Regex, true) {
			p.pattern = gpt2Pattern{newLetterTable()}
		}
		return p, nil
	}),
	"Split": with(func(o *struct {
		Pattern  patternField `json:"pattern"`
		Behavior string       `json:"behavior"`
		Invert   bool         `json:"invert"`
	},
	) (preTokenizer, error) {
		if err := knownBehavior(o.Behavior); err != nil {
			return nil, err
		}
		p, err := o.Pattern.compile("Split")
		return &split{p, o.Behavior, o.Invert}, err
	}),
	"Punctuation": with(func(o *classOptions) (preTokenizer, error) {
		behavior := or(o.Behavior, isolated)
		return &split{newClassPattern(classes().punctuation.Has), behavior, false}, knownBehavior(behavior)
	}),
	"Digits": with(func(o *classOptions) (preTokenizer, error) {
		behavior := contiguous
		if o.Individual {
			behavior = isolated
		}
		return &split{newClassPattern(classes().numeric.Has), behavior, false}, nil
	}),
	"CharDelimiterSplit": with(func(o *classOptions) (preTokenizer, error) {
		if !isCharacter(o.Delimiter) {
			return nil, fmt.Errorf("tokenizer component 'CharDelimiterSplit': delimiter '%s' is not one character", o.Delimiter)
		}
		return &split{literal(o.Delimiter), removed, false}, nil
	}),
	"FixedLength": with(func(o *classOptions) (preTokenizer, error) {
		length := or(o.Length, 5)
		if length < 1 {
			return nil, fmt.Errorf("tokenizer component 'FixedLength': length is %d, expected at least 1", length)
		}
		return &split{lengthPattern(length), isolated, false}, nil
	}),
}

// or returns the value of an option, or its default where the file has none.
func or[T any](v *T, absent T) T {
	if v == nil {
		return absent
	}
	return *v
}

func isCharacter(s string) bool {
	_, n := utf8.DecodeRuneInString(s)
	return n > 0 && n == len(s)
}

func newMetaspace(o *metaspaceOptions) (preTokenizer, error) {
	scheme := or(o.Scheme, "always")
	switch {
	case !isCharacter(o.Replacement):
		return nil, fmt.Errorf("tokenizer component 'Metaspace': replacement '%s' is not one character", o.Replacement)
	case !or(o.Prefix, true) && scheme != "never":
		return nil, errors.New("tokenizer component 'Metaspace': add_prefix_space does not match prepend_scheme")
	case scheme != "always" && scheme != "first" && scheme != "never":
		return nil, unsupported("Metaspace with prepend_scheme " + scheme)
	}
	return &metaspace{o.Replacement, scheme == "always", scheme == "first", or(o.Split, true)}, nil
}

func knownBehavior(b string) error {
	if slices.Contains([]string{removed, isolated, mergedWithPrevious, mergedWithNext, contiguous}, b) {
		return nil
	}
	return unsupported("split behavior " + b)
}

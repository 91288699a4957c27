package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"strings"
)

// Definition is a tokenizer.json, section by section. The readers of other formats return one, too.
type Definition struct {
	Version       string          `json:"version"`
	Truncation    *Truncation     `json:"truncation"`
	Padding       *Padding        `json:"padding"`
	AddedTokens   []AddedToken    `json:"added_tokens"`
	Normalizer    json.RawMessage `json:"normalizer"`
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Decoder       json.RawMessage `json:"decoder"`
	Model         json.RawMessage `json:"model"`

	template *template        // in place of a post-processor; nil for none
	finish   func(*Tokenizer) // sets properties that no section can express; nil for none
}

// version is the only version of the format.
const version = "1.0"

// Parse loads a tokenizer.json. A component, option or token that this engine would treat differently from the reference is an
// error with its name. For example, {"type":"NFKQ"} fails with "tokenizer component 'NFKQ' is not supported".
func Parse(data []byte) (*Tokenizer, error) {
	var d Definition
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, fmt.Errorf("tokenizer file: %w", err)
	}
	return New(&d)
}

// New builds the tokenizer of a definition. It fails as Parse does.
func New(d *Definition) (*Tokenizer, error) {
	if d.Version != version {
		return nil, fmt.Errorf("tokenizer version '%s' is not supported, expected '%s'", d.Version, version)
	}
	t := &Tokenizer{}
	for _, load := range []func(*Definition) error{
		t.loadNormalizer, t.loadPreTokenizer, t.loadModel, t.loadAdded, t.loadTemplate, t.loadTruncation, t.loadPadding, t.loadDecoder,
	} {
		if err := load(d); err != nil {
			return nil, err
		}
	}
	if d.finish != nil {
		d.finish(t)
	}
	return t, nil
}

// section is a section of the file that holds a component, or several in a Sequence.
type section struct {
	name, list    string // of the section, and of the field with the components of a Sequence
	deepest, most int    // nesting of sequences, and number of components
	tooMany       error
}

// component is one stage of a section: its type and its options.
type component struct {
	kind    string
	options json.RawMessage
}

// maxDepth is the deepest nesting of sequences, maxDecoders the largest number of decoders in a file, nested ones included.
const maxDepth, maxDecoders = 20, 64

func newSection(name, list string) *section {
	return &section{name, list, maxDepth, math.MaxInt, unsupported(name + " sequences so deep")}
}

var (
	normalizerSection    = newSection("normalizer", "normalizers")
	preTokenizerSection  = newSection("pre_tokenizer", "pretokenizers")
	postProcessorSection = newSection("post_processor", "processors")
	decoderSection       = &section{
		"decoder", "decoders", maxDecoders - 1, maxDecoders - 1, fmt.Errorf("tokenizer decoder has more than %d parts", maxDecoders),
	}
)

// components returns the components of a section in order, none for an absent one. A nested one that is null has no type.
func (s *section) components(raw json.RawMessage) ([]component, error) {
	if absent(raw) {
		return nil, nil
	}
	return s.flatten(nil, raw, 0)
}

func (s *section) flatten(dst []component, raw json.RawMessage, depth int) ([]component, error) {
	var c struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, fmt.Errorf("tokenizer %s: %w", s.name, err)
	}
	switch {
	case c.Type == "" && !absent(raw):
		return nil, fmt.Errorf("tokenizer %s has no type", s.name)
	case depth > s.deepest || len(dst) > s.most:
		return nil, s.tooMany
	}
	var fields map[string]json.RawMessage
	err := json.Unmarshal(raw, &fields)
	maps.DeleteFunc(fields, func(name string, _ json.RawMessage) bool { return strings.EqualFold(name, "type") })
	if c.Type != "Sequence" {
		options, _ := json.Marshal(fields) // as it was read
		return append(dst, component{c.Type, options}), err
	}
	for name := range fields {
		if name != s.list {
			err = fmt.Errorf("json: unknown field %q", name)
		}
	}
	var list []json.RawMessage
	if err == nil && fields[s.list] != nil {
		err = json.Unmarshal(fields[s.list], &list)
	}
	if err != nil {
		return nil, fmt.Errorf("tokenizer component 'Sequence': %w", err)
	}
	for _, r := range list {
		if dst, err = s.flatten(dst, r, depth+1); err != nil {
			return nil, err
		}
	}
	return dst, nil
}

// makers maps the types of components to functions that build them from their JSON.
type makers[T any] map[string]func(c component) (T, error)

func (m makers[T]) build(c component) (out T, err error) {
	if build, ok := m[c.kind]; ok {
		return build(c)
	}
	return out, unsupported(c.kind)
}

// with returns the maker of a component with options O.
func with[O, T any](build func(o *O) (T, error)) func(component) (T, error) {
	return func(c component) (out T, err error) {
		o := new(O)
		if err = strict(c.options, c.kind, o); err != nil {
			return out, err
		}
		return build(o)
	}
}

// plain returns the maker of a component without options.
func plain[T any](build func() T) func(component) (T, error) {
	return with(func(*struct{}) (T, error) { return build(), nil })
}

func absent(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// unsupported returns the error for a component, section or option that this engine does not have.
func unsupported(name string) error {
	return fmt.Errorf("tokenizer component '%s' is not supported", name)
}

// strict decodes a component. Unknown options are errors.
func strict(raw json.RawMessage, name string, into any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("tokenizer component '%s': %w", name, err)
	}
	return nil
}

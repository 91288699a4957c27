package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
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

	finish func(*Tokenizer) // sets properties that no section can express; nil for none
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
		t.loadNormalizer, t.loadPreTokenizer, t.loadModel, t.loadAdded, t.loadTemplate, t.loadTruncation, t.loadPadding,
		t.loadDecoder,
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

// kind returns the type of a component, empty for an absent one.
func kind(raw json.RawMessage, section string) (string, error) {
	if absent(raw) {
		return "", nil
	}
	var c struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return "", fmt.Errorf("tokenizer %s: %w", section, err)
	}
	if c.Type == "" {
		return "", fmt.Errorf("tokenizer %s has no type", section)
	}
	return c.Type, nil
}

func absent(raw json.RawMessage) bool {
	return len(raw) == 0 || string(raw) == "null"
}

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

// sequenceOf decodes a Sequence, whose components are in the given field.
func sequenceOf(raw json.RawMessage, field string) ([]json.RawMessage, error) {
	var c map[string]json.RawMessage
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, fmt.Errorf("tokenizer component 'Sequence': %w", err)
	}
	for name := range c {
		if name != "type" && name != field {
			return nil, fmt.Errorf("tokenizer component 'Sequence': json: unknown field %q", name)
		}
	}
	var list []json.RawMessage
	if raw := c[field]; raw != nil {
		if err := json.Unmarshal(raw, &list); err != nil {
			return nil, fmt.Errorf("tokenizer component 'Sequence': %w", err)
		}
	}
	return list, nil
}

// maxEntry is the longest vocabulary entry in bytes. It bounds the work per byte of text.
const maxEntry = 1 << 12

func checkVocab(vocab map[string]int32) error {
	for k, id := range vocab {
		if id < 0 || id > maxID {
			return fmt.Errorf("vocabulary entry '%s' has id %d, expected 0 to %d", k, id, maxID)
		}
		if len(k) > maxEntry {
			return fmt.Errorf("vocabulary entry of id %d has %d bytes, expected at most %d", id, len(k), maxEntry)
		}
	}
	return nil
}

// loadAdded sorts the added tokens into those found in the source and those found after normalization. As in the reference, ids in
// the file are ignored: a token of the vocabulary has its id there, others are numbered from its end on.
func (t *Tokenizer) loadAdded(d *Definition) error {
	var plain, normalized []AddedToken
	var plainContents, normalizedContents []string
	t.added, t.special = map[int32]string{}, map[string]bool{}
	known, next := map[string]AddedToken{}, int32(t.model.size())
	for _, a := range d.AddedTokens {
		if err := checkAdded(a); err != nil {
			return err
		}
		was, again := known[a.Content]
		switch id, ok := t.model.id(a.Content); {
		case again:
			a.ID = was.ID
		case ok:
			a.ID = id
		default:
			a.ID = next
			next++
		}
		known[a.Content] = a
		if a.Special {
			t.special[a.Content] = true
		}
	}
	for _, content := range slices.Sorted(maps.Keys(known)) {
		a := known[content]
		t.added[a.ID] = content
		if !a.Normalized {
			plain, plainContents = append(plain, a), append(plainContents, content)
			continue
		}
		var x text
		t.normalizer.normalize(&x, []byte(content), 0)
		if len(x.buf) == 0 {
			return fmt.Errorf("added token '%s' is empty when normalized", content)
		}
		t.added[a.ID] = string(x.buf)
		normalized, normalizedContents = append(normalized, a), append(normalizedContents, string(x.buf))
	}
	t.before, t.after = newAddedTokens(plain, plainContents), newAddedTokens(normalized, normalizedContents)
	return nil
}

func checkAdded(a AddedToken) error {
	if a.Content == "" || len(a.Content) > maxEntry || a.ID < 0 {
		return fmt.Errorf("added token '%.40s' with id %d: expected 1 to %d bytes and an id of at least 0", a.Content, a.ID, maxEntry)
	}
	return nil
}

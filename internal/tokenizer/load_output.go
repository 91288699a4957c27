package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
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
	switch c.Direction {
	case right:
	case left:
		p.left = true
	default:
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
	if err := t.loadProcessor(d.PostProcessor, 0); err != nil {
		return err
	}
	if t.template == nil {
		t.template = newTemplate([]templatePart{{sequence: 0}}, []templatePart{{sequence: 0}, {sequence: 1, typeID: 1}})
	}
	return nil
}

func (t *Tokenizer) loadProcessor(raw json.RawMessage, depth int) error {
	if absent(raw) {
		return nil
	}
	name, err := kind(raw, "post_processor")
	if err != nil {
		return err
	}
	switch name {
	case "TemplateProcessing", "BertProcessing", "RobertaProcessing":
		if t.template != nil {
			return unsupported("post_processor Sequence with two that add tokens")
		}
	}
	switch {
	case depth > maxDepth:
		return unsupported("post_processor sequences so deep")
	case name == "TemplateProcessing":
		return t.loadTemplateProcessing(raw)
	case name == "BertProcessing":
		return t.loadBertProcessing(raw)
	case name == "RobertaProcessing":
		return t.loadRobertaProcessing(raw)
	case name == "ByteLevel":
		return t.loadByteLevelProcessing(raw)
	case name == "Sequence":
		return t.loadProcessors(raw, depth)
	default:
		return unsupported(name)
	}
}

func (t *Tokenizer) loadProcessors(raw json.RawMessage, depth int) error {
	list, err := sequenceOf(raw, "processors")
	if err != nil {
		return err
	}
	for _, r := range list {
		if err := t.loadProcessor(r, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (t *Tokenizer) loadByteLevelProcessing(raw json.RawMessage) error {
	c := struct {
		Type   string `json:"type"`
		Prefix bool   `json:"add_prefix_space"`
		Trim   bool   `json:"trim_offsets"`
		Regex  bool   `json:"use_regex"`
	}{}
	if err := strict(raw, "ByteLevel", &c); err != nil {
		return err
	}
	if c.Trim {
		t.addTrim(c.Prefix)
	}
	return nil
}

// loadRobertaProcessing builds the templates "<s> A </s>" and "<s> A </s></s> B </s>", all of type 0.
func (t *Tokenizer) loadRobertaProcessing(raw json.RawMessage) error {
	var c struct {
		Type   string             `json:"type"`
		Sep    [2]json.RawMessage `json:"sep"`
		Cls    [2]json.RawMessage `json:"cls"`
		Trim   bool               `json:"trim_offsets"`
		Prefix bool               `json:"add_prefix_space"`
	}
	if err := strict(raw, "RobertaProcessing", &c); err != nil {
		return err
	}
	var sep, cls int32
	if json.Unmarshal(c.Sep[1], &sep) != nil || json.Unmarshal(c.Cls[1], &cls) != nil {
		return errors.New("tokenizer component 'RobertaProcessing' needs sep and cls as [text, id]")
	}
	if c.Trim {
		t.addTrim(c.Prefix)
	}
	mark := func(id int32) templatePart { return templatePart{specialPart, []int32{id}, 0} }
	single := []templatePart{mark(cls), {sequence: 0}, mark(sep)}
	t.template = newTemplate(single, append(single[:3:3], mark(sep), templatePart{sequence: 1}, mark(sep)))
	t.template.shift, t.template.flat = [2]int{1, 1}, true
	return nil
}

// loadBertProcessing builds the templates "[CLS] A [SEP]" and "[CLS] A [SEP] B [SEP]".
func (t *Tokenizer) loadBertProcessing(raw json.RawMessage) error {
	var c struct {
		Type string             `json:"type"`
		Sep  [2]json.RawMessage `json:"sep"`
		Cls  [2]json.RawMessage `json:"cls"`
	}
	if err := strict(raw, "BertProcessing", &c); err != nil {
		return err
	}
	var sep, cls int32
	if json.Unmarshal(c.Sep[1], &sep) != nil || json.Unmarshal(c.Cls[1], &cls) != nil {
		return errors.New("tokenizer component 'BertProcessing' needs sep and cls as [text, id]")
	}
	mark := func(id, typeID int32) templatePart { return templatePart{specialPart, []int32{id}, typeID} }
	single := []templatePart{mark(cls, 0), {sequence: 0}, mark(sep, 0)}
	t.template = newTemplate(single, append(single[:3:3], templatePart{sequence: 1, typeID: 1}, mark(sep, 1)))
	t.template.shift = [2]int{1, 0}
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
		Type    string          `json:"type"`
		Single  []templatePiece `json:"single"`
		Pair    []templatePiece `json:"pair"`
		Special map[string]struct {
			IDs []int32 `json:"ids"`
		} `json:"special_tokens"`
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return fmt.Errorf("tokenizer component 'TemplateProcessing': %w", err)
	}
	parts := func(list []templatePiece, highest int) ([]templatePart, error) {
		var out []templatePart
		for _, p := range list {
			switch {
			case p.SpecialToken != nil && c.Special[p.SpecialToken.ID].IDs != nil:
				out = append(out, templatePart{specialPart, c.Special[p.SpecialToken.ID].IDs, p.SpecialToken.TypeID})
			case p.SpecialToken != nil:
				return nil, fmt.Errorf("tokenizer template names special token '%s', which it does not declare", p.SpecialToken.ID)
			case p.Sequence != nil && p.Sequence.ID == "A":
				out = append(out, templatePart{sequence: 0, typeID: p.Sequence.TypeID})
			case p.Sequence != nil && p.Sequence.ID == "B" && highest > 0:
				out = append(out, templatePart{sequence: 1, typeID: p.Sequence.TypeID})
			default:
				return nil, errors.New("tokenizer template has a part that is neither a special token nor a sequence of its input")
			}
		}
		return out, nil
	}
	single, err := parts(c.Single, 0)
	if err != nil {
		return err
	}
	pair, err := parts(c.Pair, 1)
	if err != nil {
		return err
	}
	t.template = newTemplate(single, pair)
	return nil
}

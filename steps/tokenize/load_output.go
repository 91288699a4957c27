package tokenize

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

// longestPadding bounds what a file may ask every text to be padded to.
const longestPadding = 1 << 20

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
	if p.fixed > longestPadding || p.multiple < 0 || p.multiple > longestPadding || p.id < 0 {
		return fmt.Errorf("tokenizer padding to %d, a multiple of %d, with id %d: expected 0 to %d", p.fixed, p.multiple, p.id, longestPadding)
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
	case c.Stride != 0:
		return unsupported("truncation with stride")
	case c.Strategy != longestFirst && c.Strategy != onlyFirst && c.Strategy != onlySecond:
		return fmt.Errorf("tokenizer truncation strategy '%s' is not supported", c.Strategy)
	case c.Direction != left && c.Direction != right:
		return fmt.Errorf("tokenizer truncation direction '%s' is not supported", c.Direction)
	}
	t.truncation = c
	return t.checkTruncation()
}

func (t *Tokenizer) loadTemplate(f *Definition) error {
	name, err := kind(f.PostProcessor, "post_processor")
	if err != nil {
		return err
	}
	switch name {
	case "":
		t.template = newTemplate([]part{{sequence: 0}}, []part{{sequence: 0}, {sequence: 1, typeID: 1}})
		return nil
	case "TemplateProcessing":
		return t.loadTemplateProcessing(f.PostProcessor)
	case "BertProcessing":
		return t.loadBertProcessing(f.PostProcessor)
	default:
		return unsupported(name)
	}
}

// loadBertProcessing makes "[CLS] A [SEP]" and "[CLS] A [SEP] B [SEP]" of the two tokens given as [text, id].
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
	mark := func(id, typeID int32) part { return part{specialPart, []int32{id}, typeID} }
	single := []part{mark(cls, 0), {sequence: 0}, mark(sep, 0)}
	t.template = newTemplate(single, append(single[:3:3], part{sequence: 1, typeID: 1}, mark(sep, 1)))
	return nil
}

// templatePiece is one element of a TemplateProcessing list; one of the two is set.
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
	parts := func(list []templatePiece, highest int) ([]part, error) {
		var out []part
		for _, p := range list {
			switch {
			case p.SpecialToken != nil && c.Special[p.SpecialToken.ID].IDs != nil:
				out = append(out, part{specialPart, c.Special[p.SpecialToken.ID].IDs, p.SpecialToken.TypeID})
			case p.SpecialToken != nil:
				return nil, fmt.Errorf("tokenizer template names special token '%s', which it does not declare", p.SpecialToken.ID)
			case p.Sequence != nil && p.Sequence.ID == "A":
				out = append(out, part{sequence: 0, typeID: p.Sequence.TypeID})
			case p.Sequence != nil && p.Sequence.ID == "B" && highest > 0:
				out = append(out, part{sequence: 1, typeID: p.Sequence.TypeID})
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

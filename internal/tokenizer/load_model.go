package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// mergeList reads merges in both forms: ["a", "b"] and "a b".
type mergeList [][2]string

// UnmarshalJSON reads the list.
func (l *mergeList) UnmarshalJSON(data []byte) error {
	var pairs [][2]string
	if !bytes.HasPrefix(bytes.TrimLeft(bytes.TrimLeft(data, " \n\r\t")[1:], " \n\r\t"), []byte{'"'}) {
		var lists [][]string
		if err := json.Unmarshal(data, &lists); err != nil {
			return err
		}
		for _, p := range lists {
			if len(p) != 2 {
				return errMerges
			}
			pairs = append(pairs, [2]string{p[0], p[1]})
		}
		*l = pairs
		return nil
	}
	var lines []string
	if err := json.Unmarshal(data, &lines); err != nil {
		return err
	}
	for _, line := range lines {
		if strings.HasPrefix(line, "#version") {
			continue
		}
		a, b, ok := strings.Cut(line, " ")
		if !ok || strings.Contains(b, " ") {
			return errMerges
		}
		pairs = append(pairs, [2]string{a, b})
	}
	*l = pairs
	return nil
}

// scorePiece is an entry of a Unigram vocabulary.
type scorePiece struct {
	text  string
	score float64
}

// UnmarshalJSON reads [text, score].
func (p *scorePiece) UnmarshalJSON(data []byte) error {
	both := [2]any{}
	if err := json.Unmarshal(data, &both); err != nil {
		return err
	}
	var okText, okScore bool
	p.text, okText = both[0].(string)
	p.score, okScore = both[1].(float64)
	if !okText || !okScore {
		return errors.New("a vocabulary entry is not [text, score]")
	}
	return nil
}

func (t *Tokenizer) loadModel(d *Definition) error {
	if absent(d.Model) {
		return errors.New("tokenizer file has no model")
	}
	name, err := modelKind(d.Model)
	if err != nil {
		return err
	}
	switch name {
	case "WordPiece":
		t.model, err = loadWordPiece(d.Model)
	case "BPE":
		t.model, err = t.loadBPE(d.Model)
	case "Unigram":
		var c unigramSection
		if err = strict(d.Model, name, &c); err == nil {
			t.model, err = newUnigram(&c)
		}
	case "WordLevel":
		t.model, err = loadWordLevel(d.Model)
	default:
		return unsupported(name)
	}
	return err
}

// modelKind returns the type of a model. Old files do not name it; their fields identify it.
func modelKind(raw json.RawMessage) (string, error) {
	var c struct {
		Type     string          `json:"type"`
		Merges   json.RawMessage `json:"merges"`
		MaxChars json.RawMessage `json:"max_input_chars_per_word"`
		Unknown  json.RawMessage `json:"unk_id"`
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return "", fmt.Errorf("tokenizer model: %w", err)
	}
	switch {
	case c.Type != "":
		return c.Type, nil
	case c.Merges != nil:
		return "BPE", nil
	case c.MaxChars != nil:
		return "WordPiece", nil
	case c.Unknown != nil:
		return "Unigram", nil
	default:
		return "", errors.New("tokenizer model has no type")
	}
}

func loadWordPiece(raw json.RawMessage) (model, error) {
	c := struct {
		Type     string           `json:"type"`
		Unknown  string           `json:"unk_token"`
		Prefix   string           `json:"continuing_subword_prefix"`
		MaxChars int              `json:"max_input_chars_per_word"`
		Vocab    map[string]int32 `json:"vocab"`
	}{}
	if err := strict(raw, "WordPiece", &c); err != nil {
		return nil, err
	}
	if err := checkVocab(c.Vocab); err != nil {
		return nil, err
	}
	return newWordPiece(c.Vocab, c.Unknown, c.Prefix, c.MaxChars)
}

func loadWordLevel(raw json.RawMessage) (model, error) {
	c := struct {
		Type    string           `json:"type"`
		Unknown string           `json:"unk_token"`
		Vocab   map[string]int32 `json:"vocab"`
	}{}
	if err := strict(raw, "WordLevel", &c); err != nil {
		return nil, err
	}
	if err := checkVocab(c.Vocab); err != nil {
		return nil, err
	}
	m := &wordLevel{vocab: c.Vocab, names: names(c.Vocab), unknown: noID}
	if id, ok := c.Vocab[c.Unknown]; ok {
		m.unknown = id
	}
	return m, nil
}

func (t *Tokenizer) loadBPE(raw json.RawMessage) (model, error) {
	var c bpeSection
	if err := strict(raw, "BPE", &c); err != nil {
		return nil, err
	}
	if c.Dropout != nil && *c.Dropout != 0 {
		return nil, unsupported("BPE with dropout")
	}
	if err := checkVocab(c.Vocab); err != nil {
		return nil, err
	}
	last := lastByteLevel(t.preTokenizer)
	if last != nil {
		last.raw = c.canReadBytes()
	}
	return newBPE(&c, last != nil && last.raw)
}

// lastByteLevel returns the last pre-tokenizer if it is ByteLevel, or nil.
func lastByteLevel(p preTokenizer) *byteLevel {
	for {
		s, ok := p.(sequence)
		if !ok {
			break
		}
		if len(s) == 0 {
			return nil
		}
		p = s[len(s)-1]
	}
	b, _ := p.(*byteLevel)
	return b
}

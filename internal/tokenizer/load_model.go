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
	var lists [][]string
	if bytes.HasPrefix(bytes.TrimLeft(bytes.TrimLeft(data, " \n\r\t")[1:], " \n\r\t"), []byte{'"'}) {
		var lines []string
		if err := json.Unmarshal(data, &lines); err != nil {
			return err
		}
		for _, line := range lines {
			if !strings.HasPrefix(line, "#version") {
				lists = append(lists, strings.Split(line, " "))
			}
		}
	} else if err := json.Unmarshal(data, &lists); err != nil {
		return err
	}
	for _, p := range lists {
		if len(p) != 2 {
			return errMerges
		}
		pairs = append(pairs, [2]string(p))
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
	if err == nil {
		t.model, err = t.models().build(component{name, d.Model})
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

func (t *Tokenizer) models() makers[model] {
	return makers[model]{
		"WordPiece": with(func(o *struct {
			Type     string           `json:"type"`
			Unknown  string           `json:"unk_token"`
			Prefix   string           `json:"continuing_subword_prefix"`
			MaxChars int              `json:"max_input_chars_per_word"`
			Vocab    map[string]int32 `json:"vocab"`
		},
		) (model, error) {
			v, err := newVocabulary(o.Vocab)
			if err != nil {
				return nil, err
			}
			unknown, ok := v.ids[o.Unknown]
			if !ok {
				return nil, fmt.Errorf("unk_token '%s' is not in the vocabulary", o.Unknown)
			}
			trie := newTrie(v.ids)
			return &wordPiece{vocabulary: v, trie: trie, inner: trie.walk(o.Prefix), unknown: unknown, maxChars: o.MaxChars}, nil
		}),
		"WordLevel": with(func(o *struct {
			Type    string           `json:"type"`
			Unknown string           `json:"unk_token"`
			Vocab   map[string]int32 `json:"vocab"`
		},
		) (model, error) {
			v, err := newVocabulary(o.Vocab)
			return &wordLevel{v, v.idOr(o.Unknown, noID)}, err
		}),
		"Unigram": with(func(o *unigramSection) (model, error) { return newUnigram(o) }),
		"BPE": with(func(o *bpeSection) (model, error) {
			if o.Dropout != nil && *o.Dropout != 0 {
				return nil, unsupported("BPE with dropout")
			}
			raw := false
			if n := len(t.preTokenizers); n > 0 {
				if last, ok := t.preTokenizers[n-1].(*byteLevel); ok {
					raw = o.canReadBytes()
					last.raw = raw
				}
			}
			return newBPE(o, raw)
		}),
	}
}

// bpeSection is a model of type BPE. Merges are pairs, or strings with a space between the two.
type bpeSection struct {
	Type     string           `json:"type"`
	Dropout  *float64         `json:"dropout"`
	Unknown  *string          `json:"unk_token"`
	Prefix   *string          `json:"continuing_subword_prefix"`
	Suffix   *string          `json:"end_of_word_suffix"`
	Fuse     bool             `json:"fuse_unk"`
	Fallback bool             `json:"byte_fallback"`
	Ignore   bool             `json:"ignore_merges"`
	Vocab    map[string]int32 `json:"vocab"`
	Merges   mergeList        `json:"merges"`
}

var errMerges = errors.New("merges have an element that is neither a pair nor two words")

// newBPE builds the model. With raw, words reach it as bytes instead of ByteLevel's characters.
func newBPE(c *bpeSection, raw bool) (*bpe, error) {
	v, err := newVocabulary(c.Vocab)
	if err != nil {
		return nil, err
	}
	m := &bpe{vocabulary: v, unknown: noID, fuse: c.Fuse, cache: newWordCache(), merges: newPairTable(len(c.Merges))}
	if c.Unknown != nil {
		m.unknown = v.idOr(*c.Unknown, noID)
		m.strict = m.unknown == noID
	}
	for rank, p := range c.Merges {
		if err := m.addMerge(c, int32(rank), p); err != nil {
			return nil, err
		}
	}
	if c.Fallback {
		m.fallback = v.byteTokens()
	}
	if c.Ignore {
		m.whole = c.Vocab
	}
	if raw {
		m.readBytes()
		return m, nil
	}
	m.symbols = newSymbolTable(c.Vocab, or(c.Prefix, ""), or(c.Suffix, ""))
	m.findSeam(c)
	return m, nil
}

func (m *bpe) addMerge(c *bpeSection, rank int32, p [2]string) error {
	joined := p[0] + p[1][min(len(or(c.Prefix, "")), len(p[1])):]
	a, okA := c.Vocab[p[0]]
	b, okB := c.Vocab[p[1]]
	id, ok := c.Vocab[joined]
	if !okA || !okB || !ok {
		return fmt.Errorf("merge %d of '%s' and '%s' to '%s' has a token out of the vocabulary", rank, p[0], p[1], joined)
	}
	m.merges.put(a, b, candidate{rank: rank, id: id})
	return nil
}

// rankBy replaces the ranks of merges by those of the tokens that they make, as tiktoken and sentencepiece rank them. Of equal ranks
// the leftmost pair merges first.
func (m *bpe) rankBy(rank func(id int32) int32) {
	for i, key := range m.merges.keys {
		if key != noPair {
			m.merges.merged[i].rank = rank(m.merges.merged[i].id)
		}
	}
}

// canReadBytes reports whether the model can read bytes instead of ByteLevel's characters.
func (c *bpeSection) canReadBytes() bool {
	if or(c.Prefix, "") != "" || or(c.Suffix, "") != "" || c.Fallback {
		return false
	}
	for _, r := range byteChars {
		if _, ok := c.Vocab[string(r)]; !ok {
			return false
		}
	}
	return true
}

// readBytes rewrites the tables for bytes instead of ByteLevel's characters.
func (m *bpe) readBytes() {
	m.symbols.raw = true
	for b, r := range byteChars {
		m.symbols.bytes[b] = m.ids[string(r)]
	}
	if m.whole == nil {
		return
	}
	m.whole = make(map[string]int32, len(m.ids))
	for k, id := range m.ids {
		if raw, ok := rawBytes(k); ok {
			m.whole[raw] = id
		}
	}
}

// rawBytes returns the bytes that a token of ByteLevel stands for.
func rawBytes(token string) (string, bool) {
	out := make([]byte, 0, len(token))
	for _, r := range token {
		b := byteOf(r)
		if b < 0 {
			return "", false
		}
		out = append(out, byte(b))
	}
	return string(out), true
}

// findSeam sets m.seam when no merge joins a code point to a mark after it. Text can then be cut there, so that the cache sees words.
func (m *bpe) findSeam(c *bpeSection) {
	if _, ok := c.Vocab[spaceMark]; !ok || c.Ignore || or(c.Prefix, "") != "" || or(c.Suffix, "") != "" {
		return
	}
	for _, p := range c.Merges {
		joined := strings.TrimLeft(p[0]+p[1], spaceMark)
		if strings.Contains(joined, spaceMark) {
			return
		}
	}
	m.seam = []byte(spaceMark)
}

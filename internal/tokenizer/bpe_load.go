package tokenizer

import (
	"errors"
	"fmt"
	"strings"
)

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

// orEmpty returns the string, empty for null.
func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// newBPE builds the model. With raw, words reach it as bytes instead of ByteLevel's characters.
func newBPE(c *bpeSection, raw bool) (*bpe, error) {
	m := &bpe{
		vocab: c.Vocab, names: names(c.Vocab), unknown: noID, fuse: c.Fuse, cache: newWordCache(),
		merges: newPairTable(len(c.Merges)),
	}
	if c.Unknown != nil {
		if id, ok := c.Vocab[*c.Unknown]; ok {
			m.unknown = id
		} else {
			m.strict = true
		}
	}
	for rank, p := range c.Merges {
		if err := m.addMerge(c, int32(rank), p); err != nil {
			return nil, err
		}
	}
	if c.Fallback {
		m.fallback = new([256]int32)
		for b := range m.fallback {
			m.fallback[b] = noID
			if id, ok := c.Vocab[fmt.Sprintf("<0x%02X>", b)]; ok {
				m.fallback[b] = id
			}
		}
	}
	if c.Ignore {
		m.whole = c.Vocab
	}
	if raw {
		m.readBytes()
		return m, nil
	}
	m.symbols = newSymbolTable(c.Vocab, orEmpty(c.Prefix), orEmpty(c.Suffix))
	m.findSeam(c)
	return m, nil
}

func (m *bpe) addMerge(c *bpeSection, rank int32, p [2]string) error {
	joined := p[0] + p[1][min(len(orEmpty(c.Prefix)), len(p[1])):]
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
	if orEmpty(c.Prefix) != "" || orEmpty(c.Suffix) != "" || c.Fallback {
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
		m.symbols.bytes[b] = m.vocab[string(r)]
	}
	if m.whole == nil {
		return
	}
	m.whole = make(map[string]int32, len(m.vocab))
	for k, id := range m.vocab {
		if raw, ok := rawBytes(k); ok {
			m.whole[raw] = id
		}
	}
}

// rawBytes returns the bytes that a token of ByteLevel stands for.
func rawBytes(token string) (string, bool) {
	out := make([]byte, 0, len(token))
	for _, r := range token {
		b, ok := byteOfChar(r)
		if !ok {
			return "", false
		}
		out = append(out, b)
	}
	return string(out), true
}

// metaspaceMark begins words in vocabularies of sentencepiece.
const metaspaceMark = "▁"

// findSeam sets m.seam when no merge joins a code point to a mark after it. Text can then be cut there, so that the cache sees words.
func (m *bpe) findSeam(c *bpeSection) {
	if _, ok := c.Vocab[metaspaceMark]; !ok || c.Ignore || orEmpty(c.Prefix) != "" || orEmpty(c.Suffix) != "" {
		return
	}
	for _, p := range c.Merges {
		joined := strings.TrimLeft(p[0]+p[1], metaspaceMark)
		if strings.Contains(joined, metaspaceMark) {
			return
		}
	}
	m.seam = []byte(metaspaceMark)
}

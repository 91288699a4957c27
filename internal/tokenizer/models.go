package tokenizer

import (
	"errors"
	"fmt"
)

// maxID is the largest id. It bounds the memory of tables by id.
const maxID = 1 << 24

// maxEntry is the longest vocabulary entry in bytes. It bounds the work per byte of text.
const maxEntry = 1 << 12

// vocabulary implements the look-ups of a model.
type vocabulary struct {
	ids   map[string]int32
	names []string // by id, empty where there is none
}

// newVocabulary fails for an entry that is too long or has an id out of range.
func newVocabulary(ids map[string]int32) (vocabulary, error) {
	v, highest := vocabulary{ids: ids}, int32(-1)
	for name, id := range ids {
		if id < 0 || id > maxID {
			return v, fmt.Errorf("vocabulary entry '%s' has id %d, expected 0 to %d", name, id, maxID)
		}
		if len(name) > maxEntry {
			return v, fmt.Errorf("vocabulary entry of id %d has %d bytes, expected at most %d", id, len(name), maxEntry)
		}
		highest = max(highest, id)
	}
	v.names = make([]string, highest+1)
	for name, id := range ids {
		v.names[id] = name
	}
	return v, nil
}

func (v *vocabulary) id(token string) (int32, bool) {
	id, ok := v.ids[token]
	return id, ok
}

// idOr returns the id of a token, or another one where the vocabulary lacks it.
func (v *vocabulary) idOr(token string, absent int32) int32 {
	if id, ok := v.ids[token]; ok {
		return id
	}
	return absent
}

func (v *vocabulary) token(id int32) (string, bool) {
	if uint32(id) >= uint32(len(v.names)) || v.names[id] == "" {
		return "", false
	}
	return v.names[id], true
}

func (v *vocabulary) size() int { return len(v.ids) }

// byteTokens returns the tokens of bytes, such as <0x0A>, noID where there is none.
func (v *vocabulary) byteTokens() *[256]int32 {
	out := new([256]int32)
	for b := range out {
		out[b] = v.idOr(fmt.Sprintf("<0x%02X>", b), noID)
	}
	return out
}

// errUnknown is the error for a text with a part that the vocabulary lacks when there is no unknown token.
var errUnknown = errors.New("the text has a part that is not in the vocabulary, which has no unknown token")

// wordLevel is WordLevel: each word is an entry of the vocabulary or unknown.
type wordLevel struct {
	vocabulary

	unknown int32
}

func (m *wordLevel) tokenize(t *text, w Span, dst []token) []token {
	id, ok := m.ids[string(t.buf[w.Start:w.End])]
	if !ok {
		id = m.unknown
	}
	if id == noID {
		t.bad, id = errUnknown, 0
	}
	return append(dst, token{id: id, span: t.source(w), lead: byID})
}

// wordPiece is the WordPiece model: it cuts a word into the longest entries of the vocabulary from left to right. Entries after the
// first have a prefix, such as ##. A word that cannot be cut so is the unknown token.
type wordPiece struct {
	vocabulary

	trie     *trie
	inner    int32 // the node after the prefix
	unknown  int32
	maxChars int
}

// tokenize cuts one word. The longest match never ends inside a code point, as the entries are whole ones.
func (m *wordPiece) tokenize(t *text, w Span, dst []token) []token {
	b, before := t.buf[w.Start:w.End], len(dst)
	if len(b) > m.maxChars && runeCount(b) > m.maxChars {
		return append(dst, token{id: m.unknown, span: t.source(w), lead: byID})
	}
	node, at := int32(rootNode), w.Start
	for at < w.End {
		id, n := int32(noID), 0
		if node != noNode {
			id, n = m.trie.longest(node, t.buf[at:w.End])
		}
		if id == noID {
			return append(dst[:before], token{id: m.unknown, span: t.source(w), lead: byID})
		}
		next := at + int32(n)
		dst = append(dst, token{id: id, span: t.source(Span{at, next}), lead: byID})
		node, at = m.inner, next
	}
	return dst
}

// runeCount returns the number of code points in valid UTF-8.
func runeCount(b []byte) int {
	n := 0
	for _, c := range b {
		if c&0xC0 != 0x80 {
			n++
		}
	}
	return n
}

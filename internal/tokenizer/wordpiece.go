package tokenizer

import "fmt"

// wordPiece is the WordPiece model: it cuts a word into the longest entries of the vocabulary from left to right. Entries after the
// first have a prefix, such as ##. A word that cannot be cut so is the unknown token.
type wordPiece struct {
	vocab    map[string]int32
	names    []string // by id, empty where there is none
	trie     *trie
	inner    int32 // the node after the prefix
	unknown  int32
	maxChars int
}

func newWordPiece(vocab map[string]int32, unknown, prefix string, maxChars int) (*wordPiece, error) {
	id, ok := vocab[unknown]
	if !ok {
		return nil, fmt.Errorf("unk_token '%s' is not in the vocabulary", unknown)
	}
	t := newTrie(vocab)
	return &wordPiece{vocab: vocab, names: names(vocab), trie: t, inner: t.walk(prefix), unknown: id, maxChars: maxChars}, nil
}

func (m *wordPiece) id(token string) (int32, bool) {
	id, ok := m.vocab[token]
	return id, ok
}

func (m *wordPiece) token(id int32) (string, bool) { return nameOf(m.names, id) }

func (m *wordPiece) size() int { return len(m.vocab) }

func (m *wordPiece) tokenize(t *text, dst []token) []token {
	for _, w := range t.words {
		if w.id != noID {
			dst = t.added(dst, w)
			continue
		}
		dst = m.word(t, w.at, dst)
	}
	return dst
}

// word cuts one word. The longest match never ends inside a code point, as the entries are whole ones.
func (m *wordPiece) word(t *text, w Span, dst []token) []token {
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

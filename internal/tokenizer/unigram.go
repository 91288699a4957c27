package tokenizer

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// unigram is the unigram language model (Kudo 2018): it cuts a word into the entries with the highest sum of scores, found by the
// Viterbi algorithm.
type unigram struct {
	vocab    map[string]int32
	pieces   []string
	scores   []float64
	trie     *trie
	unknown  int32 // noID without one
	penalty  float64
	fallback *[256]int32
	cache    *wordCache
	sentence *sentenceScores // of a sentencepiece model
}

// latticeNode is the best cut of a text up to a position.
type latticeNode struct {
	score float64
	start int32 // of its last entry; noStart where there is no cut
	id    int32
}

const noStart = -1

// unknownPenalty is the difference between the score of an unknown code point and that of the worst entry.
const unknownPenalty = 10

// unigramSection is a model of type Unigram; a piece is [text, score].
type unigramSection struct {
	Type     string       `json:"type"`
	Unknown  *int32       `json:"unk_id"`
	Vocab    []scorePiece `json:"vocab"`
	Fallback bool         `json:"byte_fallback"`
}

func newUnigram(c *unigramSection) (*unigram, error) {
	m := &unigram{unknown: noID, vocab: make(map[string]int32, len(c.Vocab)), cache: newWordCache()}
	lowest := math.Inf(1)
	for i, p := range c.Vocab {
		if math.IsNaN(p.score) || math.IsInf(p.score, 0) {
			return nil, fmt.Errorf("vocabulary entry '%s' has score %v, expected a number", p.text, p.score)
		}
		m.pieces, m.scores = append(m.pieces, p.text), append(m.scores, p.score)
		m.vocab[p.text] = int32(i)
		lowest = min(lowest, p.score)
	}
	if c.Unknown != nil {
		if *c.Unknown < 0 || int(*c.Unknown) >= len(c.Vocab) {
			return nil, fmt.Errorf("unk_id is %d, expected 0 to %d", *c.Unknown, len(c.Vocab)-1)
		}
		m.unknown = *c.Unknown
	}
	delete(m.vocab, "")
	if err := checkVocab(m.vocab); err != nil {
		return nil, err
	}
	m.trie, m.penalty = newTrie(m.vocab), lowest-unknownPenalty
	if c.Fallback {
		m.fallback = new([256]int32)
		for b := range m.fallback {
			m.fallback[b] = noID
			if id, ok := m.vocab[fmt.Sprintf("<0x%02X>", b)]; ok {
				m.fallback[b] = id
			}
		}
	}
	return m, nil
}

func (m *unigram) id(token string) (int32, bool) {
	id, ok := m.vocab[token]
	return id, ok
}

func (m *unigram) token(id int32) (string, bool) {
	if uint32(id) >= uint32(len(m.pieces)) {
		return "", false
	}
	return m.pieces[id], true
}

func (m *unigram) size() int { return len(m.pieces) }

// errUnknown is the error for a text with a part that the vocabulary lacks when there is no unknown token.
var errUnknown = errors.New("the text has a part that is not in the vocabulary, which has no unknown token")

func (m *unigram) tokenize(t *text, dst []token) []token {
	for _, w := range t.words {
		b := t.buf[w.at.Start:w.at.End]
		if w.id != noID {
			t.score = symbolScore(t.score, len(b))
			dst = t.added(dst, w)
			continue
		}
		if len(b) > maxCachedWord || m.sentence != nil && m.sentence.carried {
			dst = t.tokens(dst, w.at.Start, m.encode(t, b))
			continue
		}
		known, slot := m.cache.find(b)
		if known != nil {
			dst = t.tokens(dst, w.at.Start, known.tokens)
			continue
		}
		out := m.encode(t, b)
		if slot != nil && len(out) <= maxCachedTokens && t.bad == nil {
			remember(slot, b, out)
		}
		dst = t.tokens(dst, w.at.Start, out)
	}
	return dst
}

// encode returns the tokens of a word, in scratch memory.
func (m *unigram) encode(t *text, b []byte) []cachedToken {
	if m.sentence != nil {
		m.searchSentence(t, b)
	} else {
		m.search(t, b)
	}
	out := t.bpe.out[:0]
	for end := int32(len(b)); end > 0; {
		n := t.lattice[end]
		start := n.start
		if n.id == m.unknown || n.id == noID {
			for start > 0 && t.lattice[start].id == n.id {
				start = t.lattice[start].start
			}
			out = m.unknowns(t, out, b[start:end])
		} else {
			out = append(out, cachedToken{n.id, end - start, end - start})
		}
		end = start
	}
	for i, k := 0, len(out)-1; i < k; i, k = i+1, k-1 {
		out[i], out[k] = out[k], out[i]
	}
	t.bpe.out = out
	return out
}

// search fills t.lattice with the best cut up to each position.
func (m *unigram) search(t *text, b []byte) {
	nodes := t.lattice[:0]
	for range len(b) + 1 {
		nodes = append(nodes, latticeNode{start: noStart})
	}
	cells := m.trie.cells
	for at := 0; at < len(b); {
		n, single, here := runeLen(b[at]), false, nodes[at].score
		node := int32(rootNode)
		for i, c := range b[at:] {
			next := cells[node].base + int32(c)
			if uint32(next) >= uint32(len(cells)) || cells[next].parent != node || next == rootNode {
				break
			}
			node = next
			id := cells[node].id
			if id == noID {
				continue
			}
			to := &nodes[at+i+1]
			if score := m.scores[id] + here; to.start == noStart || score > to.score {
				*to = latticeNode{score, int32(at), id}
			}
			single = single || i+1 == n
		}
		if !single {
			to := &nodes[at+n]
			if score := m.penalty + here; to.start == noStart || score > to.score {
				*to = latticeNode{score, int32(at), m.unknown}
			}
		}
		at += n
	}
	t.lattice = nodes
}

// unknowns appends, in reverse, the tokens of a run of unknown code points: the entry of that text if there is one, its byte tokens,
// or the unknown token.
func (m *unigram) unknowns(t *text, out []cachedToken, b []byte) []cachedToken {
	size := int32(len(b))
	if id, ok := m.vocab[string(b)]; ok {
		return append(out, cachedToken{id, size, size})
	}
	if m.fallback != nil && m.hasBytes(b) {
		step := size // each of them spans the run
		for _, v := range slices.Backward(b) {
			out, step = append(out, cachedToken{m.fallback[v], size, step}), 0
		}
		return out
	}
	if m.unknown == noID {
		t.bad = errUnknown
	}
	return append(out, cachedToken{max(m.unknown, 0), size, size})
}

func (m *unigram) hasBytes(b []byte) bool {
	for _, c := range b {
		if m.fallback[c] == noID {
			return false
		}
	}
	return true
}

// wordLevel is WordLevel: each word is an entry of the vocabulary or unknown.
type wordLevel struct {
	vocab   map[string]int32
	names   []string
	unknown int32
}

func (m *wordLevel) id(token string) (int32, bool) {
	id, ok := m.vocab[token]
	return id, ok
}

func (m *wordLevel) token(id int32) (string, bool) { return nameOf(m.names, id) }

func (m *wordLevel) size() int { return len(m.vocab) }

func (m *wordLevel) tokenize(t *text, dst []token) []token {
	for _, w := range t.words {
		if w.id != noID {
			dst = t.added(dst, w)
			continue
		}
		id, ok := m.vocab[string(t.buf[w.at.Start:w.at.End])]
		if !ok {
			id = m.unknown
		}
		if id == noID {
			t.bad, id = errUnknown, 0
		}
		dst = append(dst, token{id: id, span: t.source(w.at), lead: byID})
	}
	return dst
}

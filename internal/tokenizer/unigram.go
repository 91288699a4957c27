package tokenizer

import (
	"fmt"
	"math"
	"slices"
)

// unigram is the unigram language model (Kudo 2018): it cuts a word into the entries with the highest sum of scores, found by the
// Viterbi algorithm.
type unigram struct {
	vocabulary // names has the empty entry, too

	scores   scores[float64]
	trie     *trie
	unknown  int32 // noID without one
	fallback *[256]int32
	cache    *wordCache       // nil where the sum of scores continues across the user's symbols, which cut a text into parts
	sentence *scores[float32] // of a sentencepiece model; nil for others
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
	m := &unigram{unknown: noID, cache: newWordCache()}
	m.ids = make(map[string]int32, len(c.Vocab))
	lowest := math.Inf(1)
	for i, p := range c.Vocab {
		if math.IsNaN(p.score) || math.IsInf(p.score, 0) {
			return nil, fmt.Errorf("vocabulary entry '%s' has score %v, expected a number", p.text, p.score)
		}
		m.names, m.scores.entries = append(m.names, p.text), append(m.scores.entries, p.score)
		m.ids[p.text] = int32(i)
		lowest = min(lowest, p.score)
	}
	if c.Unknown != nil {
		if *c.Unknown < 0 || int(*c.Unknown) >= len(c.Vocab) {
			return nil, fmt.Errorf("unk_id is %d, expected 0 to %d", *c.Unknown, len(c.Vocab)-1)
		}
		m.unknown = *c.Unknown
	}
	delete(m.ids, "")
	if _, err := newVocabulary(m.ids); err != nil {
		return nil, err
	}
	m.trie, m.scores.penalty, m.scores.most = newTrie(m.ids), lowest-unknownPenalty, math.Inf(1)
	if c.Fallback {
		m.fallback = m.byteTokens()
	}
	return m, nil
}

func (m *unigram) token(id int32) (string, bool) {
	if uint32(id) >= uint32(len(m.names)) {
		return "", false
	}
	return m.names[id], true
}

func (m *unigram) size() int { return len(m.names) }

func (m *unigram) tokenize(t *text, w Span, dst []token) []token {
	return m.cache.tokenize(m, t, w, dst)
}

// encode returns the tokens of a word, in scratch memory.
func (m *unigram) encode(t *text, b []byte) []cachedToken {
	if m.sentence != nil {
		t.score = m.sentence.search(m, t, b, t.score)
	} else {
		m.scores.search(m, t, b, 0)
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
	slices.Reverse(out)
	t.bpe.out = out
	return out
}

// unknowns appends, in reverse, the tokens of a run of unknown code points: the entry of that text if there is one, its byte tokens,
// or the unknown token.
func (m *unigram) unknowns(t *text, out []cachedToken, b []byte) []cachedToken {
	size := int32(len(b))
	if id, ok := m.ids[string(b)]; ok {
		return append(out, cachedToken{id, size, size})
	}
	if m.fallback != nil && !slices.ContainsFunc(b, func(c byte) bool { return m.fallback[c] == noID }) {
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

// scores are the scores of the entries. Models of the sentencepiece library sum them in single precision over the whole text. In long
// texts, different cuts can have the same rounded sum; the first of them wins, here as there.
type scores[F float32 | float64] struct {
	entries []F
	penalty F // of an unknown code point
	most    F // the absolute sum beyond which the library starts from 0 again
}

// maxScore is the most of sentencepiece models.
const maxScore = 100000

func (m *sentenceModel) scores() *scores[float32] {
	s := &scores[float32]{most: maxScore}
	lowest, found := float32(0), false
	for _, p := range m.pieces {
		score := p.score
		if p.kind != pieceNormal {
			score = 0
		} else if !found || score < lowest {
			lowest, found = score, true
		}
		s.entries = append(s.entries, score)
	}
	s.penalty = lowest - unknownPenalty
	return s
}

// symbolScore returns the sum after a user's symbol of n bytes.
func symbolScore(sum float32, n int) float32 {
	if sum < -maxScore || sum > maxScore {
		sum = 0
	}
	return sum + float32(0.1*float64(n-1))
}

// search fills t.lattice with the best cut up to each position. It returns the sum of the scores, from the given one on.
func (s *scores[F]) search(m *unigram, t *text, b []byte, sum F) F {
	nodes := t.lattice[:0]
	for range len(b) + 1 {
		nodes = append(nodes, latticeNode{start: noStart})
	}
	nodes[0].score = float64(sum)
	cells, entries, frontier := m.trie.cells, s.entries, 0
	for at := 0; at < len(b); {
		here := s.nearZero(nodes, at, frontier)
		n, single := runeLen(b[at]), false
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
			frontier = max(frontier, at+i+1)
			to := &nodes[at+i+1]
			if score := entries[id] + here; to.start == noStart || score > F(to.score) {
				*to = latticeNode{float64(score), int32(at), id}
			}
			single = single || i+1 == n
		}
		if !single {
			frontier = max(frontier, at+n)
			to := &nodes[at+n]
			if score := s.penalty + here; to.start == noStart || score > F(to.score) {
				*to = latticeNode{float64(score), int32(at), m.unknown}
			}
		}
		at += n
	}
	t.lattice = nodes
	return F(nodes[len(b)].score)
}

// nearZero returns the sum at a position. Beyond s.most, it first subtracts the sum from all positions up to frontier.
func (s *scores[F]) nearZero(nodes []latticeNode, at, frontier int) F {
	here := F(nodes[at].score)
	if here >= -s.most && here <= s.most {
		return here
	}
	for i := at; i <= max(at, frontier); i++ {
		if i == at || nodes[i].start != noStart {
			nodes[i].score = float64(F(nodes[i].score) - here)
		}
	}
	return 0
}

package tokenizer

// sentenceScores are the scores of a sentencepiece model of type unigram. The library adds them up in single precision
// over the whole text, so that in long texts cuts count as equally good that are not, and the first of them is taken.
type sentenceScores struct {
	pieces  []float32
	penalty float32 // Of an unknown code point.
	// carried says that the model has symbols of its user, which cut a text into parts; the sum goes on from one to the next.
	carried bool
}

// mostScore is the absolute sum from which on the library counts from 0 again.
const mostScore = 100000

func (m *sentenceModel) sentenceScores(carried bool) *sentenceScores {
	s := &sentenceScores{carried: carried}
	lowest, found := float32(0), false
	for _, p := range m.pieces {
		score := p.score
		if p.kind != pieceNormal {
			score = 0
		} else if !found || score < lowest {
			lowest, found = score, true
		}
		s.pieces = append(s.pieces, score)
	}
	s.penalty = lowest - unknownPenalty
	return s
}

// symbolScore is the sum behind a user's symbol of n bytes.
func symbolScore(sum float32, n int) float32 {
	if sum < -mostScore || sum > mostScore {
		sum = 0
	}
	return sum + float32(0.1*float64(n-1))
}

// searchSentence is search as sentencepiece does it. The sum begins with, and ends in, t.score.
func (m *unigram) searchSentence(t *text, b []byte) {
	nodes := t.lattice[:0]
	for range len(b) + 1 {
		nodes = append(nodes, latticeNode{start: noStart})
	}
	nodes[0].score = float64(t.score)
	cells, frontier := m.trie.cells, 0
	for at := 0; at < len(b); {
		here := nearZero(nodes, at, frontier)
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
			nodes[at+i+1].offer(m.sentence.pieces[id]+here, at, id)
			single = single || i+1 == n
		}
		if !single {
			frontier = max(frontier, at+n)
			nodes[at+n].offer(m.sentence.penalty+here, at, m.unknown)
		}
		at += n
	}
	t.lattice, t.score = nodes, float32(nodes[len(b)].score)
}

// offer takes a way to a node that is better than the one before.
func (n *latticeNode) offer(score float32, start int, id int32) {
	if n.start == noStart || score > float32(n.score) {
		*n = latticeNode{float64(score), int32(start), id}
	}
}

// nearZero gives the sum at a place. Where it has grown too large, it and those of the places from there to the last one
// reached are counted from it.
func nearZero(nodes []latticeNode, at, frontier int) float32 {
	here := float32(nodes[at].score)
	if here >= -mostScore && here <= mostScore {
		return here
	}
	for i := at; i <= max(at, frontier); i++ {
		if i == at || nodes[i].start != noStart {
			nodes[i].score = float64(float32(nodes[i].score) - here)
		}
	}
	return 0
}

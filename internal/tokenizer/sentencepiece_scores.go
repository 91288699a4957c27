package tokenizer

// sentenceScores are the scores of a sentencepiece model of type unigram. The library sums them in single precision over the whole
// text. In long texts, different cuts can have the same rounded sum; the first of them wins, here as there.
type sentenceScores struct {
	pieces  []float32
	penalty float32 // Of an unknown code point.
	// carried continues the sum across the user's symbols, which cut a text into parts.
	carried bool
}

// maxScore is the absolute sum beyond which the library starts from 0 again.
const maxScore = 100000

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

// symbolScore returns the sum after a user's symbol of n bytes.
func symbolScore(sum float32, n int) float32 {
	if sum < -maxScore || sum > maxScore {
		sum = 0
	}
	return sum + float32(0.1*float64(n-1))
}

// searchSentence is search with the arithmetic of sentencepiece. The sum starts from t.score and is stored there.
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

// offer replaces the path to a node by a better one.
func (n *latticeNode) offer(score float32, start int, id int32) {
	if n.start == noStart || score > float32(n.score) {
		*n = latticeNode{float64(score), int32(start), id}
	}
}

// nearZero returns the sum at a position. Beyond maxScore, it first subtracts the sum from all positions up to frontier.
func nearZero(nodes []latticeNode, at, frontier int) float32 {
	here := float32(nodes[at].score)
	if here >= -maxScore && here <= maxScore {
		return here
	}
	for i := at; i <= max(at, frontier); i++ {
		if i == at || nodes[i].start != noStart {
			nodes[i].score = float64(float32(nodes[i].score) - here)
		}
	}
	return 0
}

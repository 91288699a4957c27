package ctc

import (
	"cmp"
	"math"
	"slices"
)

// none stands for the token of the root, and for a hypothesis before the first window.
const none = -1

// node is a text: that of its parent and one token more. Node 0 is the empty text.
type node struct{ parent, token int32 }

// hypothesis is a text with the token of the last window, and its score.
type hypothesis struct {
	state
	score float64
}

// state is a text with the token of the last window, which decides whether the same token again makes the text longer.
type state struct {
	// node is the text; for one that is not in search.nodes yet it is that without the last token, which is added.
	node  int32
	added int32 // none for no token
	last  int32
}

// search is a prefix beam search: hypotheses with the same text and last token are one, whose score is the logarithm of the sum of their
// probabilities. It has the rules of pyctcdecode: hypotheses that differ in the last token count as two for the width of the beam, and spaces
// never follow each other or begin the text.
//
// Lifecycle: reset, then extend for each window, then finish.
type search struct {
	s        *step
	nodes    []node
	children map[node]int32 // the nodes that have been made
	beams    []hypothesis
	next     []hypothesis
	known    map[state]int32 // places in next
}

// reset begins a search.
func (q *search) reset(s *step) {
	q.s = s
	if q.children == nil {
		q.children, q.known = map[node]int32{}, map[state]int32{}
	}
	clear(q.children)
	q.nodes = append(q.nodes[:0], node{none, none})
	q.beams = append(q.beams[:0], hypothesis{state: state{added: none, last: none}})
}

// extend continues every hypothesis with every likely token of a window, of which best is the likeliest.
func (q *search) extend(logs []float64, best int) {
	q.next = q.next[:0]
	clear(q.known)
	for token, log := range logs {
		if log < q.s.tokenLeast && token != best {
			continue
		}
		for i := range q.beams {
			q.add(q.beams[i], int32(token), log)
		}
	}
	q.prune()
	for i := range q.next {
		q.settle(&q.next[i])
	}
	q.beams, q.next = q.next, q.beams
}

// add continues h with a token.
func (q *search) add(h hypothesis, token int32, log float64) {
	v := q.s.vocabulary
	h.score += log
	second := int(token) == v.delimiter && q.atWordStart(h.node) // a space that does not count
	if token != h.last && int(token) != v.blank && !second {
		h.added = token
		if child, ok := q.children[node{h.node, token}]; ok {
			h.node, h.added = child, none
		}
	}
	h.last = token
	q.merge(h)
}

// atWordStart reports whether a text is empty or ends with a space.
func (q *search) atWordStart(n int32) bool {
	return n == 0 || int(q.nodes[n].token) == q.s.vocabulary.delimiter
}

// merge adds h to the next hypotheses.
func (q *search) merge(h hypothesis) {
	if i, ok := q.known[h.state]; ok {
		q.next[i].score = logSum(q.next[i].score, h.score)
		return
	}
	q.known[h.state] = int32(len(q.next))
	q.next = append(q.next, h)
}

// logSum returns log(e^a + e^b).
func logSum(a, b float64) float64 {
	if a < b {
		a, b = b, a
	}
	return a + math.Log1p(math.Exp(b-a))
}

// prune drops the hypotheses that are too far below the best one or do not fit into the beam, and sorts the others, the best first.
func (q *search) prune() {
	most := math.Inf(-1)
	for i := range q.next {
		most = max(most, q.next[i].score)
	}
	q.next = slices.DeleteFunc(q.next, func(h hypothesis) bool { return h.score < most+q.s.beamLeast })
	slices.SortStableFunc(q.next, func(a, b hypothesis) int { return cmp.Compare(b.score, a.score) })
	q.next = q.next[:min(len(q.next), q.s.width)]
}

// settle makes the node of a hypothesis.
func (q *search) settle(h *hypothesis) {
	if h.added == none {
		return
	}
	key := node{h.node, h.added}
	n, ok := q.children[key]
	if !ok {
		n = int32(len(q.nodes))
		q.nodes = append(q.nodes, key)
		q.children[key] = n
	}
	h.node, h.added = n, none
}

// finish returns the best texts. The space at the end of a text does not count.
func (q *search) finish() []hypothesis {
	q.next = q.next[:0]
	clear(q.known)
	for _, h := range q.beams {
		if v := q.s.vocabulary; h.node != 0 && int(q.nodes[h.node].token) == v.delimiter {
			h.node = q.nodes[h.node].parent
		}
		h.last = none
		q.merge(h)
	}
	q.prune()
	return q.next[:min(len(q.next), q.s.best)]
}

// path appends the tokens of a text to p.
func (q *search) path(p []int32, n int32) []int32 {
	for ; n != 0; n = q.nodes[n].parent {
		p = append(p, q.nodes[n].token)
	}
	slices.Reverse(p)
	return p
}

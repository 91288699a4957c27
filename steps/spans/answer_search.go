package spans

import (
	"bytes"
	"math"
	"slices"

	"github.com/tutti-server/tutti/core/status"
)

// candidate is an answer from one token to another.
type candidate struct {
	score      float64
	start, end int
}

// below reports whether c is worse than d: by score, then the one that is later or longer.
func (c *candidate) below(d *candidate) bool {
	switch {
	case c.score != d.score:
		return c.score < d.score
	case c.start != d.start:
		return c.start > d.start
	default:
		return c.end > d.end
	}
}

// masked is the logit of tokens outside the context, as in Hugging Face's pipeline.
const masked = -10000

// markContext marks the tokens that an answer may contain: those of sequence 1 or, without sequences, those after the first special
// token behind the question.
func (r *answerRun) markContext(n int) {
	t := &r.tokens
	r.context = slices.Grow(r.context[:0], n)[:n]
	question, behind := false, false
	for i := range n {
		seen := t.seen(i)
		if t.sequences != nil {
			r.context[i] = seen && t.sequences[i] == 1
			continue
		}
		question = question || seen
		behind = behind || question && t.special[i] != 0
		r.context[i] = seen && behind
	}
}

// softmax turns logits into probabilities over the context, and over token 0 where that is special: models point there when there is
// no answer.
func (r *answerRun) softmax(out []float64, logits []float32, name string) ([]float64, error) {
	n := len(logits)
	out = slices.Grow(out[:0], n)[:n]
	highest := math.Inf(-1)
	for i, v := range logits {
		out[i] = masked
		if r.context[i] || i == 0 && r.tokens.special[0] != 0 {
			out[i] = float64(v)
			if !(v <= math.MaxFloat32) {
				return out, status.Errorf(status.InvalidArg, "input '%s': expected finite numbers, token %d is %v", name, i, v)
			}
		}
		highest = max(highest, out[i])
	}
	sum := 0.0
	for i, v := range out {
		out[i] = 0
		if v == highest { // infinities of the same sign weigh the same
			out[i] = 1
		} else {
			out[i] = math.Exp(v - highest)
		}
		sum += out[i]
	}
	for i := range out {
		out[i] /= sum
	}
	return out, nil
}

// search leaves the best candidates in the heap, best first. There are more than top_k, since several may merge into one answer.
func (s *answerStep) search(r *answerRun, n int) {
	limit := s.topK
	if r.tokens.words != nil {
		limit = 2*s.topK + 10
	}
	r.heap = r.heap[:0]
	for start := 1; start < n; start++ {
		if !r.context[start] || r.starts[start] == 0 {
			continue
		}
		for end := start; end < n && end-start < s.maxTokens; end++ {
			c := candidate{r.starts[start] * r.ends[end], start, end}
			if !r.context[end] || c.score == 0 {
				continue
			}
			r.offer(&c, limit)
		}
	}
	slices.SortFunc(r.heap, func(a, b candidate) int {
		if b.below(&a) {
			return -1
		}
		return 1
	})
}

// offer adds c to the heap when it is among the best limit candidates. The worst of them is on top.
func (r *answerRun) offer(c *candidate, limit int) {
	h := r.heap
	if len(h) < limit {
		h = append(h, *c)
		for i := len(h) - 1; i > 0 && h[i].below(&h[(i-1)/2]); i = (i - 1) / 2 {
			h[i], h[(i-1)/2] = h[(i-1)/2], h[i]
		}
		r.heap = h
		return
	}
	if !h[0].below(c) {
		return
	}
	h[0] = *c
	for i := 0; ; {
		worst := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(h); child++ {
			if h[child].below(&h[worst]) {
				worst = child
			}
		}
		if worst == i {
			return
		}
		h[i], h[worst] = h[worst], h[i]
		i = worst
	}
}

// collect turns the candidates into passages. Those whose texts differ in case only become one.
func (s *answerStep) collect(r *answerRun, first int) error {
	for i := range r.heap {
		c := &r.heap[i]
		start, end, err := r.extent(c)
		if err != nil {
			return err
		}
		p := s.in.passage(&r.tokens, start, end, float32(c.score))
		if same := sameText(r.found.list[first:], p.text); same >= 0 {
			r.found.list[first+same].score += p.score
		} else {
			r.found.list = append(r.found.list, p)
		}
	}
	return nil
}

// sameText returns a passage of the same text, ignoring case; -1 when there is none.
func sameText(list []passage, text []byte) int {
	for i := range list {
		if bytes.EqualFold(list[i].text, text) {
			return i
		}
	}
	return -1
}

// extent returns the byte range of a candidate, extended to whole words where those are known.
func (r *answerRun) extent(c *candidate) (start, end int, err error) {
	from, to := c.start, c.end
	if words := r.tokens.words; words != nil && words[from] >= 0 && words[to] >= 0 {
		for from > 0 && r.context[from-1] && words[from-1] == words[from] {
			from--
		}
		for to+1 < len(words) && r.context[to+1] && words[to+1] == words[to] {
			to++
		}
	}
	if start, _, err = r.tokens.span(from); err != nil {
		return 0, 0, err
	}
	if _, end, err = r.tokens.span(to); err != nil {
		return 0, 0, err
	}
	return start, max(start, end), nil
}

// rank sorts answers by score, stably, and returns how many stay.
func rank(list []passage, most int) int {
	slices.SortStableFunc(list, func(a, b passage) int {
		switch {
		case a.score > b.score:
			return -1
		case a.score < b.score:
			return 1
		default:
			return 0
		}
	})
	return min(len(list), most)
}

package spans

import (
	"math"

	"github.com/tutti-server/tutti/core/status"
)

// word is a token, or the tokens of a word, with one label by the strategy.
type word struct {
	start, end int // bytes of the text
	label      int32
	score      float32
}

// group is the passage that is being built.
type group struct {
	words       int
	start, end  int
	first, last int32 // labels
	sum         float64
}

// best returns the most probable class of token i (the first of equal ones) and the sum of exp(logit - highest) over all classes, so
// that its probability is 1/sum.
func (s *tokenStep) best(r *tokenRun, i int) (top int32, sum float64, err error) {
	logits := r.logits[i*len(s.labels) : (i+1)*len(s.labels)]
	highest := float32(math.Inf(-1))
	for class, v := range logits {
		if v != v {
			highest = v
			break
		}
		if v > highest {
			top, highest = int32(class), v
		}
	}
	if !(math.Abs(float64(highest)) <= math.MaxFloat32) {
		return 0, 0, status.Errorf(status.InvalidArg, "input 'logits': expected finite numbers, the highest of token %d is %v", i, highest)
	}
	for _, v := range logits {
		sum += math.Exp(float64(v) - float64(highest))
	}
	return top, sum, nil
}

// word reads the token at i or, for a strategy on words, the tokens of the word that begins there, up to token n. next is the token
// after it.
func (s *tokenStep) word(r *tokenRun, i, n int) (w word, next int, err error) {
	top, sum, err := s.best(r, i)
	if err != nil {
		return w, 0, err
	}
	if w.start, w.end, err = r.tokens.span(i); err != nil {
		return w, 0, err
	}
	w.label, w.score = top, float32(1/sum)
	if s.strategy == strategyNone || s.strategy == strategySimple {
		return w, i + 1, nil
	}
	if s.strategy == strategyAverage {
		clear(r.sums)
		s.add(r, i, top, sum)
	}
	count, last := 1, i
	for next = i + 1; next < n; next++ {
		if !r.tokens.seen(next) {
			continue
		}
		start, end, err := r.tokens.span(next)
		if err != nil {
			return w, 0, err
		}
		if !r.tokens.continues(last, next, start) {
			break
		}
		if top, sum, err = s.best(r, next); err != nil {
			return w, 0, err
		}
		w.end, last = end, next
		count++
		switch s.strategy {
		case strategyMax:
			if score := float32(1 / sum); score > w.score {
				w.label, w.score = top, score
			}
		case strategyAverage:
			s.add(r, next, top, sum)
		}
	}
	if s.strategy == strategyAverage {
		w.label, w.score = likeliest(r.sums, count)
	}
	w.end = max(w.start, w.end)
	return w, next, nil
}

// add adds token i's probabilities to the word's.
func (s *tokenStep) add(r *tokenRun, i int, top int32, sum float64) {
	logits := r.logits[i*len(s.labels) : (i+1)*len(s.labels)]
	highest := float64(logits[top])
	for class, v := range logits {
		r.sums[class] += math.Exp(float64(v)-highest) / sum
	}
}

// likeliest returns the class with the highest sum, and its mean over count tokens.
func likeliest(sums []float64, count int) (class int32, mean float32) {
	for i, v := range sums {
		if v > sums[class] {
			class = int32(i)
		}
	}
	return class, float32(sums[class] / float64(count))
}

// continues reports whether token i, whose text begins at start, belongs to the same word as token last.
func (t *tokens) continues(last, i, start int) bool {
	if t.words != nil {
		return t.words[i] >= 0 && t.words[i] == t.words[last]
	}
	return start > 0 && t.text[start-1] != ' ' && (start == len(t.text) || t.text[start] != ' ')
}

// join adds w to the current passage, or starts another one.
func (s *tokenStep) join(r *tokenRun, w *word) {
	g, l := &r.group, &s.labels[w.label]
	joins := s.strategy != strategyNone && g.words > 0 && !l.begins
	if joins {
		before := &s.labels[g.last]
		joins = !before.ends && before.tag == l.tag
	}
	if !joins {
		s.flush(r)
		*g = group{start: w.start, first: w.label}
	}
	g.words++
	g.end, g.last = w.end, w.label
	g.sum += float64(w.score)
}

// flush ends the current passage.
func (s *tokenStep) flush(r *tokenRun) {
	g := &r.group
	if g.words == 0 {
		return
	}
	score := float32(g.sum / float64(g.words))
	if !s.labels[g.first].ignored && score >= s.minScore {
		p := s.in.passage(&r.tokens, g.start, max(g.start, g.end), score)
		p.label = g.first
		r.found.list = append(r.found.list, p)
	}
	g.words = 0
}

package classify

import "math"

// ranks reports whether class a comes before class b: by descending score, then by index, NaN last.
func ranks(scores []float32, a, b int32) bool {
	x, y := scores[a], scores[b]
	switch {
	case x > y:
		return true
	case x < y:
		return false
	case x == y:
		return a < b
	}
	xNaN, yNaN := math.IsNaN(float64(x)), math.IsNaN(float64(y))
	if xNaN != yNaN {
		return yNaN
	}
	return a < b
}

// best writes the best classes to idx, in order. There must be at least len(idx) scores. A heap with the
// worst selected class on top bounds the time to n log k for every order of the scores.
func best(idx []int32, scores []float32) {
	k := len(idx)
	for i := range idx {
		idx[i] = int32(i)
	}
	for i := k/2 - 1; i >= 0; i-- {
		sink(idx, scores, i)
	}
	for i := k; i < len(scores); i++ {
		if ranks(scores, int32(i), idx[0]) {
			idx[0] = int32(i)
			sink(idx, scores, 0)
		}
	}
	for n := k - 1; n > 0; n-- {
		idx[0], idx[n] = idx[n], idx[0]
		sink(idx[:n], scores, 0)
	}
}

// sink moves element i of the heap down until no element below it is worse.
func sink(idx []int32, scores []float32, i int) {
	for {
		worst := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(idx); child++ {
			if ranks(scores, idx[worst], idx[child]) {
				worst = child
			}
		}
		if worst == i {
			return
		}
		idx[i], idx[worst] = idx[worst], idx[i]
		i = worst
	}
}

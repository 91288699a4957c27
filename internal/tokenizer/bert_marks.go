package tokenizer

import "slices"

// mark is a combining mark between two starters. An inserted one came out of a decomposition and shares the source
// range of what stands before it.
type mark struct {
	r        rune
	class    uint8
	inserted bool
	gone     bool // accent stripping removes it
	src      Span
}

// smallRun is the longest run of marks that insertion sort is used for.
const smallRun = 16

// putComposed writes a code point that becomes several, by decomposition or in lower case.
func (n *bertNormalizer) putComposed(t *text, r rune, src Span) {
	if !n.strip {
		n.putPart(t, r, 0, false, src)
		return
	}
	t.runes = decompose(t.runes[:0], r)
	for i, d := range t.runes {
		n.putPart(t, d, combiningClass(d), i > 0, src)
	}
}

// putPart adds one code point of a decomposition: marks wait for the next starter.
func (n *bertNormalizer) putPart(t *text, r rune, class uint8, inserted bool, src Span) {
	if class != 0 {
		t.marks = append(t.marks, mark{r, class, inserted, classes().mark.Has(r), src})
		return
	}
	n.flush(t)
	if !inserted {
		t.prev = src
	}
	n.finish(t, r, t.prev)
}

// flush sorts the waiting marks in canonical order and writes those that stay. The source ranges are not sorted along: the
// reference aligns by position.
func (n *bertNormalizer) flush(t *text) {
	if len(t.marks) == 0 {
		return
	}
	if kept := slices.ContainsFunc(t.marks, func(m mark) bool { return !m.gone }); !kept {
		t.prev = lastSource(t.marks, t.prev)
		t.marks = t.marks[:0]
		return
	}
	t.order = t.order[:0]
	for _, m := range t.marks {
		if !m.inserted {
			t.order = append(t.order, m.src)
		}
	}
	sortByClass(t.marks, func(m *mark) uint8 { return m.class })
	next := 0
	for _, m := range t.marks {
		if !m.inserted {
			t.prev = t.order[next]
			next++
		}
		if !m.gone {
			n.finish(t, m.r, t.prev)
		}
	}
	t.marks = t.marks[:0]
}

// finish strips or lowers one decomposed code point and writes it.
func (n *bertNormalizer) finish(t *text, r rune, src Span) {
	if n.strip && classes().mark.Has(r) {
		return
	}
	if !n.lower {
		t.emit(r, src)
		return
	}
	t.emit(lowerRune(r), src)
	if r == upperDottedI {
		t.emit(dotAbove, src)
	}
}

// lastSource returns the source range of the last mark that was not inserted, or prev.
func lastSource(marks []mark, prev Span) Span {
	for _, m := range slices.Backward(marks) {
		if !m.inserted {
			return m.src
		}
	}
	return prev
}

// sortByClass sorts by combining class, stably. Runs are short in all usual text; for those insertion sort is fastest.
func sortByClass[T any](run []T, class func(*T) uint8) {
	if len(run) > smallRun {
		slices.SortStableFunc(run, func(a, b T) int { return int(class(&a)) - int(class(&b)) })
		return
	}
	for i := 1; i < len(run); i++ {
		for j := i; j > 0 && class(&run[j]) < class(&run[j-1]); j-- {
			run[j], run[j-1] = run[j-1], run[j]
		}
	}
}

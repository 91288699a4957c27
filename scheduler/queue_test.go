package scheduler

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
)

// naive is a queue as one would write it without a thought for its cost.
type naive []*Work

func (q *naive) remove(n int, out func(i int, w *Work) bool) []*Work {
	var gone, kept []*Work
	for i, w := range *q {
		if i < n && out(i, w) {
			gone = append(gone, w)
		} else {
			kept = append(kept, w)
		}
	}
	*q = kept
	return gone
}

func drained(l List) []*Work {
	var got []*Work
	for w := l.Pop(); w != nil; w = l.Pop() {
		got = append(got, w)
	}
	return got
}

// agree fails the test unless both hold the same works.
func agree(t *testing.T, q *queue, want naive) {
	t.Helper()
	if q.len() != len(want) {
		t.Fatalf("%d works, want %d", q.len(), len(want))
	}
	for i, w := range want {
		if q.at(i) != w {
			t.Fatalf("work %d is another", i)
		}
	}
	// Nothing else is held, or finished requests would stay in memory.
	held := 0
	for _, w := range q.ring {
		if w != nil {
			held++
		}
	}
	if held != len(want) {
		t.Fatalf("the ring holds %d works, want %d", held, len(want))
	}
}

// TestQueueProperty compares the ring with the naive queue over random pushes,
// takes and sweeps.
func TestQueueProperty(t *testing.T) {
	t.Parallel()
	steps := 20_000
	if testing.Short() {
		steps = 2_000
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test wants the same numbers again
	var q queue
	var want naive
	agree(t, &q, want)
	for range steps {
		switch rng.IntN(6) {
		default:
			for range rng.IntN(20) {
				w := &Work{Ctx: context.Background(), key: uint64(rng.IntN(3))}
				if rng.IntN(4) == 0 {
					w.Ctx = gone
				}
				q.push(w)
				want = append(want, w)
			}
		case 2, 3:
			compareTake(t, rng, &q, &want)
		case 4:
			compareSweep(t, rng.IntN(30), &q, &want)
		case 5:
			n, drop := rng.IntN(q.len()+1), rng.IntN(4)
			out := func(i int, _ *Work) bool { return i%4 <= drop }
			if got := drained(q.remove(n, out)); !slices.Equal(got, want.remove(n, out)) {
				t.Fatalf("removed %d other works", len(got))
			}
		}
		agree(t, &q, want)
	}
}

// compareTake takes random positions.
func compareTake(t *testing.T, rng *rand.Rand, q *queue, want *naive) {
	t.Helper()
	if q.len() == 0 {
		return
	}
	var positions []int32
	for i := range q.len() {
		if rng.IntN(3) == 0 {
			positions = append(positions, int32(i))
		}
	}
	if len(positions) == 0 {
		positions = []int32{int32(rng.IntN(q.len()))}
	}
	first := (*want)[positions[0]]
	expected := want.remove(len(*want), func(i int, w *Work) bool {
		return slices.Contains(positions, int32(i)) && w.key == first.key
	})
	list := q.take(positions, func(a, b *Work) bool { return a.key == b.key })
	if n := list.Len(); n != len(expected) {
		t.Fatalf("took a list of length %d, want %d", n, len(expected))
	}
	if !slices.Equal(drained(list), expected) {
		t.Fatal("took other works")
	}
}

// compareSweep sweeps, after which the first n works have clients.
func compareSweep(t *testing.T, n int, q *queue, want *naive) {
	t.Helper()
	live, end := 0, 0
	for ; end < len(*want) && live < n; end++ {
		if (*want)[end].Ctx.Err() == nil {
			live++
		}
	}
	expected := want.remove(end, func(_ int, w *Work) bool { return w.Ctx.Err() != nil })
	if got := drained(q.sweep(n)); !slices.Equal(got, expected) {
		t.Fatalf("swept %d works, want %d", len(got), len(expected))
	}
}

func TestListKeepsCount(t *testing.T) {
	t.Parallel()
	var l List
	if l.Pop() != nil || l.Len() != 0 {
		t.Error("an empty list is not empty")
	}
	works := make([]Work, 3)
	for round := range 2 { // the second one after it ran empty
		for i := range works {
			works[i].Rows = int32(i + 1)
			l.Push(&works[i])
		}
		if l.Len() != 3 || l.rows() != 6 {
			t.Errorf("round %d: %d works of %d rows", round, l.Len(), l.rows())
		}
		for i := range works {
			if l.Pop() != &works[i] || works[i].Next() != nil {
				t.Errorf("round %d: work %d is another or still in a list", round, i)
			}
		}
	}
}

package ring

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// TestRing checks that a ring always holds the newest traces of a complete list, unchanged.
func TestRing(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var g ring
		if err := g.open(4096); err != nil {
			t.Fatal(err)
		}
		var all [][]byte
		for seq := uint64(1); seq <= 300; seq++ {
			b := bytes.Repeat([]byte{byte(seq)}, rnd.IntN(700))
			g.put(&header{seq: seq}, b)
			all = append(all, b)
			if seq%7 == 0 {
				compare(t, &g, all)
			}
		}
		if err := g.close(); err != nil {
			t.Fatal(err)
		}
		compare(t, &g, nil)
	}
}

func compare(t *testing.T, g *ring, all [][]byte) {
	t.Helper()
	w := walk{g: g}
	var list []entry
	for !w.over {
		list = w.more(func(*header) bool { return true }, list)
	}
	if len(list) != g.n || g.mem != nil && g.n < 3 {
		t.Fatalf("%d traces are found, %d are kept", len(list), g.n)
	}
	for i, k := range list {
		want := len(all) - i
		if int(k.seq) != want || !bytes.Equal(k.bytes, all[want-1]) {
			t.Fatalf("the trace %d from the end is number %d, expected %d", i, k.seq, want)
		}
	}
	if _, used, n, _ := g.stats(); n > 0 && (used <= 0 || used > 4096) {
		t.Fatalf("%d bytes are used", used)
	}
}

// TestLearn checks that the estimate converges to the 99th percentile.
func TestLearn(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	m := &model{}
	beyond := 0
	for i := range 100_000 {
		if m.slow(rnd.Int64N(1_000_000), 1) && i > 20_000 {
			beyond++
		}
	}
	if beyond < 400 || beyond > 1600 {
		t.Errorf("%d of 80000 requests are slow, expected about 800", beyond)
	}
}

func TestClasses(t *testing.T) {
	t.Parallel()
	for _, ns := range []int64{-1, 0, 7, 8, 9, 100, 1000, 12345, 1 << 30, 1 << 62} {
		c := class(ns)
		if c < 0 || c >= buckets {
			t.Fatalf("%d has class %d", ns, c)
		}
		if got := middle(c); ns >= 8 && ns < 1<<40 && (got < ns*7/8 || got > ns*9/8) {
			t.Errorf("%d is taken as %d", ns, got)
		}
	}
}

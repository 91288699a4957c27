package deadline_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/tutti-server/tutti/scheduler/deadline"
)

// model is a model whose batches take fixed + rows*perRow, in ns.
type model struct{ fixed, perRow float64 }

func (m model) time(rows int) int64 { return int64(m.fixed + float64(rows)*m.perRow) }

// wrong returns the mean error of the estimates for batches up to 16 rows.
func (m model) wrong(l *deadline.Latency) (mean float64) {
	for rows := 1; rows <= 16; rows++ {
		mean += math.Abs(float64(l.Of(float64(rows)))/float64(m.time(rows))-1) / 16
	}
	return mean
}

// observe adds so many batches of random sizes.
func (m model) observe(l *deadline.Latency, r *rand.Rand, batches int) {
	for range batches {
		rows := 1 + r.IntN(16)
		l.Observe(float64(rows), float64(rows), m.time(rows))
	}
}

// TestLatencyLearns checks that an estimate is exact for a model whose times are a line, and that there is none before 8 batches.
func TestLatencyLearns(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // equal in each run
	m, l := model{2e6, 5e5}, &deadline.Latency{}
	m.observe(l, r, 7)
	if l.Known() || l.Of(4) != 0 {
		t.Errorf("after 7 batches there is an estimate of %d ns, expected none", l.Of(4))
	}
	m.observe(l, r, 43)
	if wrong := m.wrong(l); wrong > 0.02 {
		t.Errorf("after 50 batches estimates are wrong by %.1f %%", 100*wrong)
	}
}

// TestLatencyRecovers checks that estimates that are wrong by ten times, either way, are right again after 50 batches, by 15 % on average: a
// model has become slower or faster, or other processes use its processors.
func TestLatencyRecovers(t *testing.T) {
	t.Parallel()
	const runs = 100
	for _, factor := range []float64{10, 0.1} {
		mean := 0.0
		for seed := range uint64(runs) {
			r := rand.New(rand.NewPCG(seed, 3)) //nolint:gosec // equal in each run
			m, l := model{2e6, 5e5}, &deadline.Latency{}
			m.observe(l, r, 200)
			m = model{m.fixed * factor, m.perRow * factor}
			if before := m.wrong(l); before < 0.85 {
				t.Fatalf("the estimates are wrong by %.0f %%, expected about ten times", 100*before)
			}
			m.observe(l, r, 50)
			mean += m.wrong(l) / runs
		}
		if mean > 0.15 {
			t.Errorf("times are %v of what they were: 50 batches later estimates are wrong by %.0f %% on average", factor, 100*mean)
		}
	}
}

// TestLatencyStalls checks that batches which take ten times as long now and then, as beside other load, and some that take a million times as
// long, as those of a process that is stopped, do not spoil the estimate, however many there are: 300 batches after the last one it is right.
func TestLatencyStalls(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 4)) //nolint:gosec // equal in each run
	m, l := model{1e3, 5e2}, &deadline.Latency{}
	m.observe(l, r, 50)
	for i := range 100_000 {
		slower := int64(10)
		if i%100 == 0 {
			slower = 1e6
		}
		l.Observe(1, 1, m.time(1)*slower)
		m.observe(l, r, 1+r.IntN(20))
	}
	m.observe(l, r, 300)
	if wrong := m.wrong(l); !(wrong < 0.1) {
		t.Errorf("estimates are wrong by %.0f %%", 100*wrong)
	}
}

// TestLatencyOfLargeBatches checks what remains of a time in which every large batch was ten times as slow, and small ones between them were
// not: nothing, 80 small batches later.
func TestLatencyOfLargeBatches(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 5)) //nolint:gosec // equal in each run
	for _, m := range []model{{20e6, 0}, {5e6, 1e6}} {
		l := &deadline.Latency{}
		m.observe(l, r, 100)
		for range 25 {
			l.Observe(16, 16, 10*m.time(16))
			l.Observe(1, 1, m.time(1))
		}
		for range 80 {
			rows := 1 + r.IntN(2)
			l.Observe(float64(rows), float64(rows), m.time(rows))
		}
		if got, want := l.Of(16), m.time(16); got > want*11/10 {
			t.Errorf("a batch of 16 rows is expected to take %.1f ms, it takes %.1f", float64(got)/1e6, float64(want)/1e6)
		}
	}
}

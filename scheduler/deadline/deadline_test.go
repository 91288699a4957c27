package deadline_test

import (
	"math/rand/v2"
	"testing"

	"github.com/tutti-server/tutti/scheduler/deadline"
)

const ms = int64(1e6)

// observe adds n batches of random sizes of a model with a batch time of 2 + 0.5 b ms, times a factor.
func observe(l *deadline.Latency, rng *rand.Rand, n int, factor float64) {
	for range n {
		size := float64(1 + rng.IntN(16))
		l.Observe(size, size, int64((2+0.5*size)*factor*float64(ms)))
	}
}

// TestLatency checks that times are learned by size, and that an estimate which is wrong by ten times is right within 50 batches.
func TestLatency(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 1)) //nolint:gosec // a test wants the same numbers again
	var l deadline.Latency
	observe(&l, rng, 7, 1)
	if l.Known() || l.Of(8) != 0 {
		t.Error("seven batches are an estimate")
	}
	check := func(what string, factor float64) {
		t.Helper()
		for _, size := range []float64{1, 8, 16} {
			want := (2 + 0.5*size) * factor * float64(ms)
			if got := float64(l.Of(size)); got < 0.75*want || got > 1.25*want {
				t.Errorf("%s: a batch of %v takes %.1f ms, want %.1f", what, size, got/float64(ms), want/float64(ms))
			}
		}
	}
	observe(&l, rng, 100, 1)
	check("at first", 1)
	observe(&l, rng, 50, 10)
	check("ten times slower", 10)
	observe(&l, rng, 50, 1)
	check("as fast as before", 1)
}

// TestRoute predicts ways through a diamond of which two stages share a device.
//
//	0 -> 1 -> 3
//	  -> 2 ->
func TestRoute(t *testing.T) { //nolint:paralleltest // it counts allocations
	r := deadline.NewRoute([][]int32{nil, {0}, {0}, {1, 2}}, []int32{0, 1, 1, 2})
	times := []int64{10 * ms, 20 * ms, 5 * ms, 1 * ms}
	for i, ns := range times {
		for range 8 {
			r.Stages[i].Latency.Observe(1, 1, ns)
		}
	}
	if got := r.Alone(); got != 31*ms {
		t.Errorf("alone it takes %d ms, want 31", got/ms)
	}
	for name, c := range map[string]struct {
		set     func(s []deadline.Stage)
		stage   int
		leaves  int64
		want    int64
		slowest int
	}{
		"the longest way at a join, on one device": {nil, deadline.Arrival, 0, 36 * ms, 2},
		"busy": {func(s []deadline.Stage) { s[0].Busy = 7 * ms }, deadline.Arrival, 0, 43 * ms, 2},
		"what is queued needs the stages that follow": {func(s []deadline.Stage) { s[0].Work, s[0].Rows = 10*ms, 1 }, deadline.Arrival, 0, 51 * ms, 2},
		"what is queued before a stage is not ahead":  {func(s []deadline.Stage) { s[0].Work, s[0].Rows = 10*ms, 1 }, 0, 10 * ms, 36 * ms, 2},
		"from the last but one":                       {func(s []deadline.Stage) { s[3].Work = 4 * ms }, 1, 3 * ms, 5 * ms, 3},
		"from the end":                                {nil, 3, 2 * ms, 2 * ms, deadline.Arrival},
	} {
		stages := make([]deadline.Stage, len(r.Stages))
		copy(stages, r.Stages)
		if c.set != nil {
			c.set(r.Stages)
		}
		ends, slowest := r.After(c.stage, c.leaves, 1)
		if ends != c.want || slowest != c.slowest {
			t.Errorf("%s: it ends after %d ms, slowest at %d, want %d and %d", name, ends/ms, slowest, c.want/ms, c.slowest)
		}
		copy(r.Stages, stages)
	}
	if n := testing.AllocsPerRun(100, func() { r.After(deadline.Arrival, 0, 1) }); n != 0 {
		t.Errorf("%v allocations a prediction", n)
	}
}

// sharedDevice is a device with a load.
type sharedDevice deadline.Load

func (d *sharedDevice) Load() deadline.Load { return deadline.Load(*d) }
func (*sharedDevice) Watch()                {}
func (*sharedDevice) Watched() bool         { return true }

// TestRouteOfSharedDevice predicts ways through two stages at a device that other queues use, too: what those have queued is before a
// request that arrives, but no more of it that has no deadline than the request's own way takes.
func TestRouteOfSharedDevice(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		load        deadline.Load
		own         int64 // of what is queued, the first stage's
		instances   int
		want, after int64 // from the arrival, and from the end of the first stage
	}{
		"idle":               {deadline.Load{Slots: 1}, 0, 1, 30 * ms, 20 * ms},
		"busy":               {deadline.Load{Slots: 1, Busy: 7 * ms}, 0, 1, 37 * ms, 20 * ms},
		"others":             {deadline.Load{Slots: 1, Queued: 40 * ms}, 0, 1, 70 * ms, 20 * ms},
		"its own":            {deadline.Load{Slots: 1, Queued: 40 * ms}, 40 * ms, 1, 70 * ms, 20 * ms},
		"without a deadline": {deadline.Load{Slots: 1, Undated: 1000 * ms}, 0, 1, 60 * ms, 20 * ms},
		"two at a time":      {deadline.Load{Slots: 2, Queued: 40 * ms}, 0, 1, 50 * ms, 20 * ms},
		"two instances":      {deadline.Load{Slots: 1, Queued: 40 * ms}, 40 * ms, 2, 70 * ms, 20 * ms},
	} {
		device := sharedDevice(c.load)
		r := deadline.NewRoute([][]int32{nil, {0}}, []int32{0, 1})
		for i, ns := range []int64{10 * ms, 20 * ms} {
			s := &r.Stages[i]
			s.Device, s.Load, s.Instances = &device, device.Load(), c.instances
			for range 8 {
				s.Latency.Observe(1, 1, ns)
			}
		}
		r.Stages[0].Queued, r.Stages[0].Work = c.own, c.own/int64(c.instances)
		r.Share()
		if got, _ := r.After(deadline.Arrival, 0, 1); got != c.want {
			t.Errorf("%s: it ends after %d ms, want %d", name, got/ms, c.want/ms)
		}
		if got, _ := r.After(0, 0, 1); got != c.after {
			t.Errorf("%s: the rest takes %d ms, want %d", name, got/ms, c.after/ms)
		}
	}
}

// TestPick chooses between queues of a device, whose batches of n rows of at most 16 take 2 + n ms.
func TestPick(t *testing.T) {
	t.Parallel()
	batch := func(rows, depth int, closes int64) deadline.Candidate {
		return deadline.Candidate{Batch: int64(2+rows) * ms, Rows: rows, Most: 16, Full: float64(18*ms) / 16, Closes: closes * ms, Depth: depth}
	}
	unknown := func(depth int) deadline.Candidate {
		return deadline.Candidate{Rows: 3, Most: 16, Closes: 99 * ms, Depth: depth}
	}
	of := func(graph int64, c deadline.Candidate) deadline.Candidate {
		c.Graph = graph
		return c
	}
	for name, c := range map[string]struct {
		list []deadline.Candidate
		want int
	}{
		"none":                                  {nil, -1},
		"of equal depth, the fullest":           {[]deadline.Candidate{batch(1, 0, 90), batch(16, 0, 99), batch(8, 0, 99)}, 1},
		"of equal depth, the one that closes":   {[]deadline.Candidate{batch(16, 0, 99), batch(1, 0, 17)}, 1},
		"the deepest":                           {[]deadline.Candidate{batch(16, 0, 90), batch(14, 1, 90), batch(13, 2, 90)}, 2},
		"an earlier one that fits":              {[]deadline.Candidate{batch(8, 0, 90), batch(6, 2, 90)}, 0},
		"an earlier one that is too large":      {[]deadline.Candidate{batch(12, 0, 90), batch(6, 2, 90)}, 1},
		"an earlier one that may become fuller": {[]deadline.Candidate{batch(4, 0, 90), batch(6, 2, 90)}, 1},
		"a full one waits for none":             {[]deadline.Candidate{batch(16, 0, 90), batch(16, 1, 90)}, 1},
		"one that fits into one that fits":      {[]deadline.Candidate{batch(9, 0, 90), batch(7, 1, 90), batch(2, 2, 90)}, 0},
		"it waits as long as it can":            {[]deadline.Candidate{batch(8, 0, 90), batch(6, 2, 10)}, 0},
		"it cannot wait":                        {[]deadline.Candidate{batch(8, 0, 90), batch(6, 2, 9)}, 1},
		"an earlier one that closes":            {[]deadline.Candidate{batch(12, 0, 1), batch(6, 2, 90)}, 1},
		"times that are not known":              {[]deadline.Candidate{unknown(0), unknown(1)}, 1},
		"nor those of the earlier one":          {[]deadline.Candidate{{Rows: 16, Most: 16, Closes: 99 * ms}, unknown(1)}, 1},
		"nor those of the earlier one alone":    {[]deadline.Candidate{{Rows: 3, Most: 16, Closes: 99 * ms}, batch(6, 1, 99)}, 1},
		"of several graphs, the fullest":        {[]deadline.Candidate{of(1, batch(1, 2, 90)), batch(16, 0, 90), of(2, batch(8, 1, 90))}, 1},
		"another graph's that closes":           {[]deadline.Candidate{of(1, batch(16, 3, 90)), batch(1, 0, 17)}, 1},
		"another graph's that closes, and waits": {[]deadline.Candidate{
			of(1, batch(16, 0, 90)), of(2, batch(8, 1, 90)), of(2, batch(12, 0, 1)),
		}, 0},
		"rows of another graph do not join": {[]deadline.Candidate{of(1, batch(8, 0, 90)), of(2, batch(6, 2, 90)), of(2, batch(11, 0, 90))}, 0},
	} {
		if got := deadline.Pick(0, c.list); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// TestPickOrder checks random candidates: the choice does not depend on their order, where no two are equal, and no deeper one of its graph would
// close before the chosen one is done.
func TestPickOrder(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test wants the same numbers again
	for range 2000 {
		list := make([]deadline.Candidate, 1+rng.IntN(6))
		for i := range list {
			most := 2 << rng.IntN(5)
			rows := 1 + rng.IntN(most-1)
			fixed := int64(1+rng.IntN(1000))*ms/100 + int64(i)
			list[i] = deadline.Candidate{
				Batch: fixed + int64(rows)*ms, Rows: rows, Most: most, Full: float64(fixed)/float64(most) + float64(ms),
				Closes: rng.Int64N(100 * ms), Graph: rng.Int64N(2), Depth: rng.IntN(4),
			}
		}
		got := deadline.Pick(0, list)
		chosen := list[got]
		for _, c := range list {
			if c.Graph == chosen.Graph && c.Depth > chosen.Depth && c.Closes < min(chosen.Batch, chosen.Closes) {
				t.Fatalf("%+v executes, and %+v closes meanwhile", chosen, c)
			}
		}
		order := rng.Perm(len(list))
		mixed := make([]deadline.Candidate, len(list))
		for i, at := range order {
			mixed[i] = list[at]
		}
		if again := mixed[deadline.Pick(0, mixed)]; again != chosen {
			t.Fatalf("%+v executes, and %+v in another order of %+v", chosen, again, list)
		}
	}
}

// TestMargins judges a batch of 100 ms before 50 ms of other steps.
func TestMargins(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		deviation  float64
		ends, safe int64
	}{
		"exact":  {0, 150 * ms, 165 * ms},
		"varies": {0.2, 156 * ms, 201 * ms},
	} {
		m := deadline.Margins{Batch: 100 * ms, Rest: 50 * ms, Deviation: c.deviation}
		if ends, safe := m.Ends(), m.Safe(); ends != c.ends || safe != c.safe {
			t.Errorf("%s: ends after %d ms, safe from %d ms on, want %d and %d", name, ends/ms, safe/ms, c.ends/ms, c.safe/ms)
		}
	}
}

// TestProbes checks that probes become rarer as long as they are late, and that one in time ends that.
func TestProbes(t *testing.T) {
	t.Parallel()
	var p deadline.Probes
	if !p.Try(1) || p.Try(2) {
		t.Error("the first probe must start, and no other one beside it")
	}
	now, waits := int64(1), []int64(nil)
	for range 12 {
		p.Ended(now, false)
		from := now
		for !p.Try(now) {
			now += ms
		}
		waits = append(waits, (now-from)/ms)
	}
	if waits[0] != 5 || waits[1] != 10 || waits[11] != 1000 {
		t.Errorf("waits of %v ms, want 5, 10 and so on to 1000", waits)
	}
	p.Ended(now, true)
	if !p.Try(now) {
		t.Error("after a probe in time the next one waits")
	}
}

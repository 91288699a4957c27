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

// TestPick chooses between queues of a device.
func TestPick(t *testing.T) {
	t.Parallel()
	full := float64(ms)
	for name, c := range map[string]struct {
		list []deadline.Candidate
		want int
	}{
		"none":                     {nil, -1},
		"the one that loses least": {[]deadline.Candidate{{Batch: 3 * ms, Rows: 1, Full: full, Closes: 90 * ms}, {Batch: 16 * ms, Rows: 16, Full: full, Closes: 99 * ms}}, 1},
		"of equal ones the deeper": {[]deadline.Candidate{{Batch: ms, Rows: 1, Full: full, Closes: 1, Depth: 1}, {Batch: ms, Rows: 1, Full: full, Closes: 2, Depth: 2}}, 1},
		"a deeper one that closes": {[]deadline.Candidate{{Batch: 16 * ms, Rows: 16, Full: full, Closes: 90 * ms}, {Batch: 3 * ms, Rows: 1, Full: full, Closes: 15 * ms, Depth: 1}}, 1},
		"it can still wait":        {[]deadline.Candidate{{Batch: 16 * ms, Rows: 16, Full: full, Closes: 90 * ms}, {Batch: 3 * ms, Rows: 1, Full: full, Closes: 17 * ms, Depth: 1}}, 0},
	} {
		if got := deadline.Pick(0, c.list); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// TestMargins judges a batch of 100 ms before 50 ms of other steps, of a model whose times vary: where the device is contended early, elsewhere
// late, with the safe ones first.
func TestMargins(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		deviation  float64
		contended  bool
		ends, safe int64
	}{
		"exact, contended":  {0, true, 150 * ms, 225 * ms},
		"varies, contended": {0.2, true, 165 * ms, 240 * ms},
		"exact, own":        {0, false, 150 * ms, 150 * ms},
		"varies, own":       {0.2, false, 145 * ms, 190 * ms},
	} {
		m := deadline.Margins{Batch: 100 * ms, Rest: 50 * ms, Deviation: c.deviation, Contended: c.contended}
		if ends, safe := m.Ends(), m.Safe(); ends != c.ends || safe != c.safe {
			t.Errorf("%s: ends after %d ms, safe from %d ms on, want %d and %d", name, ends/ms, safe/ms, c.ends/ms, c.safe/ms)
		}
	}
}

// TestContended checks at which stages a batch delays others: those whose device a later stage uses, too, or other queues; and which stages
// lie behind none of these.
func TestContended(t *testing.T) {
	t.Parallel()
	r := deadline.NewRoute([][]int32{nil, {0}, {0}, {1, 2}}, []int32{0, 1, 2, 1})
	check := func(entered bool, contended, first []bool) {
		t.Helper()
		for i := range contended {
			if r.Contended(i) != contended[i] || r.First(i) != first[i] {
				t.Errorf("stage %d: contended %v, first %v, want %v and %v", i, r.Contended(i), r.First(i), contended[i], first[i])
			}
		}
		if r.Entered() != entered {
			t.Errorf("the first stage is contended: %v, want %v", !entered, entered)
		}
	}
	check(false, []bool{false, true, false, false}, []bool{true, true, true, false})
	if r.Share() {
		t.Error("without devices of others nothing changes")
	}
	r.Stages[0].Device = &sharedDevice{Slots: 1}
	if !r.Share() || r.Share() {
		t.Error("the device of a stage must change something once")
	}
	check(true, []bool{true, true, false, false}, []bool{true, false, false, false})
	r.Stages[0].Device = nil
	r.Share()
	check(false, []bool{false, true, false, false}, []bool{true, true, true, false})
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

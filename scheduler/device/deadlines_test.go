package device_test

import (
	"slices"
	"testing"

	"github.com/tutti-server/tutti/scheduler/deadline"
	"github.com/tutti-server/tutti/scheduler/device"
)

// sharing is a device of which a test holds the only execution, with models that wait for it.
type sharing struct {
	arbiter *device.Arbiter
	now     int64
	models  []*device.Group
	device  deadline.Device
	served  []int
}

// newSharing returns a device with models that have made the given bids.
func newSharing(t *testing.T, bids []*deadline.Bid) *sharing {
	t.Helper()
	s := &sharing{}
	s.arbiter = device.New(device.Settings{Executions: 1, Clock: func() int64 { return s.now }})
	for _, b := range bids {
		g, err := s.arbiter.Register([]device.Demand{{OnCPU: true}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(g.Close)
		if b != nil {
			s.device = g.Limiters[0].Bids(b)
		}
		s.models = append(s.models, g)
	}
	return s
}

// bid returns a bid of a batch of so many rows, of 16, that takes 5 ms and closes at a time in ms, at a depth.
func bid(rows int, closes int64, depth int) *deadline.Bid {
	b := &deadline.Bid{}
	offer(b, rows, closes, depth)
	return b
}

func offer(b *deadline.Bid, rows int, closes int64, depth int) {
	const ms = 1e6
	b.Set(deadline.Candidate{Batch: 5 * ms, Rows: rows, Most: 16, Full: 5 * ms / 16, Closes: closes * ms, Depth: depth}, 5*ms)
}

// order has all models but the first wait while that one executes, and returns the order in which they are served.
func (s *sharing) order(t *testing.T) []int {
	t.Helper()
	if !s.models[0].Limiters[0].Acquire(nil) {
		t.Fatal("nothing executes, and the first is not admitted")
	}
	for i, g := range s.models[1:] {
		if g.Limiters[0].Acquire(func() { s.served = append(s.served, i+1) }) {
			t.Fatal("two execute")
		}
	}
	last := 0
	for range s.models[1:] {
		s.now += 5e6
		s.models[last].Limiters[0].Release()
		last = s.served[len(s.served)-1]
	}
	return s.served
}

// TestPickedByDeadline checks the order in which models with deadlines have a device: those of later steps first, of equal ones full batches,
// and before them one whose window closes.
func TestPickedByDeadline(t *testing.T) {
	t.Parallel()
	undated := &deadline.Bid{}
	undated.Set(deadline.Candidate{Batch: 5e6, Rows: 16, Most: 16, Full: 5e6 / 16, Closes: deadline.NoDeadline}, 5e6)
	for name, c := range map[string]struct {
		bids []*deadline.Bid
		want []int
	}{
		"no deadlines":            {[]*deadline.Bid{nil, nil, nil, nil}, []int{1, 2, 3}},
		"the fullest":             {[]*deadline.Bid{nil, bid(2, 500, 0), bid(4, 500, 0), bid(16, 500, 0)}, []int{3, 2, 1}},
		"the deepest":             {[]*deadline.Bid{nil, bid(16, 500, 0), bid(16, 500, 2), bid(16, 500, 1)}, []int{2, 3, 1}},
		"the one that closes":     {[]*deadline.Bid{nil, bid(16, 500, 0), bid(2, 7, 1)}, []int{2, 1}},
		"with one that has none":  {[]*deadline.Bid{nil, undated, bid(2, 500, 0), bid(16, 500, 0)}, []int{1, 3, 2}},
		"with one without a bid":  {[]*deadline.Bid{nil, nil, bid(2, 500, 0), bid(16, 500, 0)}, []int{1, 3, 2}},
		"that does not come late": {[]*deadline.Bid{nil, bid(2, 500, 0), nil, bid(16, 500, 0)}, []int{3, 2, 1}},
	} {
		if got := newSharing(t, c.bids).order(t); !slices.Equal(got, c.want) {
			t.Errorf("%s: served in the order %v, expected %v", name, got, c.want)
		}
	}
}

// TestDeadlinesKeepShares checks that a model without deadlines keeps its share of a device beside two with deadlines of which one is
// always preferred.
func TestDeadlinesKeepShares(t *testing.T) {
	t.Parallel()
	const span = 3000
	now := int64(0)
	a := device.New(device.Settings{Executions: 1, Clock: func() int64 { return now }})
	bids := []*deadline.Bid{bid(16, 1e6, 1), bid(2, 1e6, 0), nil}
	runs, limiters := make([]int, len(bids)), make([]*device.Limiter, len(bids))
	ready := -1
	for i, b := range bids {
		g, err := a.Register([]device.Demand{{}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(g.Close)
		if limiters[i] = g.Limiters[0]; b != nil {
			limiters[i].Bids(b)
		}
	}
	for i, g := range limiters {
		if g.Acquire(func() { ready = i }) {
			ready = i
		}
	}
	for range span {
		i := ready
		runs[i]++
		now += 5e6
		if bids[i] != nil { // as its queue does
			offer(bids[i], 16-14*i, 1e6, 1-i)
		}
		if limiters[i].Reacquire() {
			ready = i
		}
	}
	if runs[2] < span*30/100 || runs[2] > span*36/100 {
		t.Errorf("executions %v: the model without deadlines has %d of %d, expected a third", runs, runs[2], span)
	}
}

// TestDeadlinesOfGraphs checks that a step of an ensemble which always has a row does not keep a model that is no step, with full batches whose
// windows close, from the device.
func TestDeadlinesOfGraphs(t *testing.T) {
	t.Parallel()
	const span, ms = 1000, 1e6
	now := int64(0)
	a := device.New(device.Settings{Executions: 1, Clock: func() int64 { return now }})
	offers := []func() deadline.Candidate{
		func() deadline.Candidate {
			return deadline.Candidate{Batch: 2 * ms, Rows: 1, Most: 16, Full: 5 * ms / 16, Closes: now + 900*ms, Graph: 1, Depth: 1}
		},
		func() deadline.Candidate {
			return deadline.Candidate{Batch: 5 * ms, Rows: 16, Most: 16, Full: 5 * ms / 16, Closes: now + 2*ms}
		},
	}
	bids, runs, ready := make([]*deadline.Bid, len(offers)), make([]int, len(offers)), -1
	limiters := make([]*device.Limiter, len(offers))
	for i := range offers {
		g, err := a.Register([]device.Demand{{}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(g.Close)
		bids[i], limiters[i] = &deadline.Bid{}, g.Limiters[0]
		bids[i].Set(offers[i](), 5*ms)
		limiters[i].Bids(bids[i])
	}
	for i, g := range limiters {
		if g.Acquire(func() { ready = i }) {
			ready = i
		}
	}
	for range span {
		i := ready
		runs[i]++
		now += 5 * ms
		for j := range bids {
			bids[j].Set(offers[j](), 5*ms)
		}
		if limiters[i].Reacquire() {
			ready = i
		}
	}
	if runs[1] < span*9/10 {
		t.Errorf("executions %v: the model that is no step has %d of %d", runs, runs[1], span)
	}
}

// TestLoad checks what a device says that it has to do.
func TestLoad(t *testing.T) {
	t.Parallel()
	undated := &deadline.Bid{}
	undated.Set(deadline.Candidate{Batch: 7e6, Rows: 1, Closes: deadline.NoDeadline}, 14e6)
	first := bid(16, 500, 0)
	s := newSharing(t, []*deadline.Bid{first, bid(16, 500, 0), undated})
	d := s.device
	if d.Watched() {
		t.Error("the device is watched before it was asked")
	}
	check := func(what string, want deadline.Load) {
		t.Helper()
		if got := d.Load(); got != want {
			t.Errorf("%s: %+v, expected %+v", what, got, want)
		}
	}
	check("idle", deadline.Load{Slots: 1, Queued: 10e6, Undated: 14e6})
	s.models[0].Limiters[0].Acquire(nil)
	s.now = 2e6
	check("busy", deadline.Load{Slots: 1, Busy: 3e6, Queued: 5e6, Undated: 14e6})
	s.now = 9e6
	check("overdue", deadline.Load{Slots: 1, Queued: 5e6, Undated: 14e6})
	s.models[0].Limiters[0].Release()
	s.models[2].Close()
	s.models[1].Close()
	check("one model", deadline.Load{Slots: 1})
	if d.Watched() {
		t.Error("the device is watched because it was asked for its load")
	}
	if d.Watch(); !d.Watched() {
		t.Error("the device is not watched")
	}
}

// TestPickKeepsReservations checks that deadlines take no resources which are reserved for an instance that waits before: an execution of many
// threads is not passed by one that needs some of them.
func TestPickKeepsReservations(t *testing.T) {
	t.Parallel()
	a := device.New(device.Settings{Executions: 3, Threads: 4})
	var served []int
	register := func(threads int, b *deadline.Bid) *device.Limiter {
		g, err := a.Register([]device.Demand{{OnCPU: true, Threads: threads}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(g.Close)
		if b != nil {
			g.Limiters[0].Bids(b)
		}
		return g.Limiters[0]
	}
	long, short := register(3, nil), register(0, nil)
	many, none, some := register(4, nil), register(0, bid(2, 500, 0)), register(1, bid(16, 500, 0))
	wait := func(i int, g *device.Limiter) bool { return g.Acquire(func() { served = append(served, i) }) }
	if !wait(0, long) || !wait(0, short) || wait(1, many) || wait(2, none) || wait(3, some) {
		t.Fatal("expected two to execute, and three to wait: one for threads, the others for an execution beside it")
	}
	short.Release()
	if !slices.Equal(served, []int{2}) {
		t.Errorf("served %v, expected the one that needs none of the reserved threads", served)
	}
	long.Release()
	if !slices.Equal(served, []int{2, 1}) {
		t.Errorf("served %v, expected the one of many threads next", served)
	}
}

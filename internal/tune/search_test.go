package tune_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/tutti-server/tutti/internal/load"
	"github.com/tutti-server/tutti/internal/precision"
	"github.com/tutti-server/tutti/internal/tune"
)

// TestSearchFindsBatches checks that a model whose time hardly grows with its rows gets batches, and one whose rows all
// cost the same gets instances.
func TestSearchFindsBatches(t *testing.T) {
	t.Parallel()
	const ms = float64(time.Millisecond)
	fixed := oneModel(tune.NewCost(1, 10*ms, 0.1*ms), 16)
	r, err := tune.Search(t.Context(), fixed, 1, 100*time.Millisecond, 0)
	if err != nil {
		t.Fatal(err)
	}
	if s := r.Advice.Settings[0]; !s.Batching || r.Advice.Highest < 3*r.Current.Highest {
		t.Errorf("a fixed cost: %s, from %v to %v requests/s", s.String(), r.Current.Highest, r.Advice.Highest)
	}
	perRow := oneModel(tune.NewCost(1, 0, 10*ms), 16)
	if r, err = tune.Search(t.Context(), perRow, 4, 100*time.Millisecond, 0); err != nil {
		t.Fatal(err)
	}
	if s := r.Advice.Settings[0]; s.Instances < 4 || r.Advice.Highest < 3*r.Current.Highest {
		t.Errorf("a cost per row: %s, from %v to %v requests/s", s.String(), r.Current.Highest, r.Advice.Highest)
	}
	if front := tune.Pareto(r.Points); len(front) < 3 {
		t.Errorf("the Pareto front has %d of %d points", len(front), len(r.Points))
	}
}

// TestSearchVersion checks that a version in another precision is chosen where it is faster, also for the least processor time, and not
// where it is hardly faster.
func TestSearchVersion(t *testing.T) {
	t.Parallel()
	const ms = float64(time.Millisecond)
	two := tune.Version{Number: 2, Precision: precision.INT8}
	for _, c := range []struct {
		cost, rate float64
		want       tune.Version
	}{{4 * ms, 0, two}, {4 * ms, 20, two}, {9.9 * ms, 0, tune.Version{}}, {9.9 * ms, 20, tune.Version{}}, {20 * ms, 0, tune.Version{}}} {
		n := oneModel(tune.NewCost(1, 0, 10*ms), 0)
		n.Models[0].Costs[tune.Execution{Version: two}] = tune.NewCost(1, 0, c.cost)
		r, err := tune.Search(t.Context(), n, 2, 200*time.Millisecond, c.rate)
		if err != nil {
			t.Fatal(err)
		}
		if s := &r.Advice.Settings[0]; s.Version != c.want || strings.HasPrefix(s.String(), "version 2 in int8, ") != (c.want == two) {
			t.Errorf("%v ns instead of 10 ms, at %v/s: %s", c.cost, c.rate, s)
		}
	}
}

// TestSearchSavesCores checks that at a given rate the settings with the least processor time are found, within the
// objective.
func TestSearchSavesCores(t *testing.T) {
	t.Parallel()
	const ms = float64(time.Millisecond)
	n := oneModel(tune.NewCost(1, 5*ms, 0.1*ms), 16)
	n.Models[0].Current.Batching = true
	r, err := tune.Search(t.Context(), n, 4, 60*time.Millisecond, 150)
	if err != nil {
		t.Fatal(err)
	}
	s := &r.Advice.Settings[0]
	o, err := tune.Simulate(&tune.Scenario{Network: n, Settings: r.Advice.Settings, Cores: 4, Arrivals: poisson(5000, 150)})
	if err != nil || o.P99 > 60*time.Millisecond || s.Delay == 0 {
		t.Errorf("%s: p99 %v, error %v; expected a delay for larger batches", s, o.P99, err)
	}
}

// TestSearchSustains checks that a long objective does not hide a queue that grows: the highest rate of a model of 100 us is at most
// what it executes in the long run, with headroom.
func TestSearchSustains(t *testing.T) {
	t.Parallel()
	n := oneModel(tune.NewCost(1, float64(100*time.Microsecond)), 0)
	const capacity, headroom = 10_000, 1.3
	r, err := tune.Search(t.Context(), n, 1, 50*time.Millisecond, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Current.Highest; got < 0.9*capacity/headroom || got > 1.08*capacity/headroom {
		t.Errorf("the highest rate is %.0f requests/s, want about %.0f", got, capacity/headroom)
	}
}

// TestPilotRate checks that the calibration lowers its rate when the server did not reach it, and only then: latencies of a queue
// that grows are no costs of a request.
func TestPilotRate(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	n := oneModel(tune.NewCost(1, float64(ms)), 0) // at most 1,000 requests/s
	for name, c := range map[string]struct {
		measured tune.Outcome
		want     float64
	}{
		"as simulated":                   {tune.Outcome{P50: ms, P99: 3 * ms, Throughput: 500}, 500},
		"waits within a tenth":           {tune.Outcome{P50: 9 * ms, P99: 40 * ms, Throughput: 500}, 500},
		"a tail of other work":           {tune.Outcome{P50: 2 * ms, P99: 900 * ms, Throughput: 500}, 500},
		"a queue that grows":             {tune.Outcome{P50: 300 * ms, P99: 600 * ms, Throughput: 480}, 0.7 * 480},
		"fewer requests than arrive":     {tune.Outcome{P50: 2 * ms, P99: 3 * ms, Throughput: 400}, 0.7 * 400},
		"hardly any request is executed": {tune.Outcome{P50: 2000 * ms, P99: 3000 * ms, Throughput: 1}, 0.7 * 250},
	} {
		if got, err := tune.Lowered(n, 1, 100*ms, 500, c.measured); err != nil || math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: the next rate is %v, error %v, want %v", name, got, err, c.want)
		}
	}
}

// TestDisturbed checks which errors name the other processes that used the cores: those that they may have caused.
func TestDisturbed(t *testing.T) {
	t.Parallel()
	n, python := oneModel(tune.NewCost(1, 1e6), 0), oneModel(tune.NewCost(1, 1e6), 0)
	python.Models[0].Config.Backend = "python"
	unreachable, other := &tune.UnreachableError{Objective: time.Second, Best: time.Minute}, errors.New("no model")
	for _, c := range []struct {
		n       *tune.Network
		err     error
		foreign float64
		busy    bool
	}{
		{n, unreachable, 1.5, true}, {n, load.ErrLate, 0.2, true}, {n, unreachable, 0.1, false}, {n, other, 1.5, false}, {python, unreachable, 1.5, false},
	} {
		err := tune.Disturbed(c.n, c.err, c.foreign)
		_, busy := errors.AsType[*tune.BusyError](err)
		if busy != c.busy || !errors.Is(err, c.err) || strings.Contains(err.Error(), "cores meanwhile: repeat it where nothing else runs") != busy {
			t.Errorf("%v beside %v cores: %v", c.err, c.foreign, err)
		}
	}
}

// TestSearchUnreachable checks the error of an objective that cannot be met: it has the best that can be had.
func TestSearchUnreachable(t *testing.T) {
	t.Parallel()
	n := oneModel(tune.NewCost(1, float64(20*time.Millisecond)), 0)
	for _, rate := range []float64{0, 500} {
		_, err := tune.Search(t.Context(), n, 2, 10*time.Millisecond, rate)
		e, ok := errors.AsType[*tune.UnreachableError](err)
		if !ok || e.Best < 20*time.Millisecond || !strings.Contains(err.Error(), "the lowest p99 that can be had at") {
			t.Errorf("rate %v: %v", rate, err)
		}
	}
	slow := tune.UnreachableError{Objective: time.Second, Best: 400 * time.Millisecond, Rate: 500, Executed: 90, Settings: "m: 1 instance"}
	if got := slow.Error(); got != "the objective of 1s cannot be met: of 500 requests/s at most 90 are executed, with m: 1 instance" {
		t.Error(got)
	}
}

// TestLeast checks that a run at a low rate has fewer requests, so that it ends.
func TestLeast(t *testing.T) {
	t.Parallel()
	for rate, want := range map[float64]int{1000: 300, 20: 300, 10: 150, 1: 30, 0.1: 30} {
		if got := tune.Least(&tune.Settings{}, rate); got != want {
			t.Errorf("%v/s: %d requests, expected %d", rate, got, want)
		}
	}
	if got := tune.Least(&tune.Settings{Brief: true}, 1000); got != 15 {
		t.Errorf("a brief run has %d requests, expected 15", got)
	}
}

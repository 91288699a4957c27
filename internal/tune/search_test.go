package tune_test

import (
	"errors"
	"strings"
	"testing"
	"time"

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

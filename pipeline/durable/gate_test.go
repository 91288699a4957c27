package durable

import (
	"context"
	"testing"
	"time"
)

// TestGateFindsTheLimit drives a gate on a clock of its own: a model whose throughput grows up to some requests in flight.
func TestGateFindsTheLimit(t *testing.T) {
	t.Parallel()
	for _, knee := range []int{1, 4, 32, 100} {
		g := newGate(1)
		now := time.Unix(0, 0)
		g.now = func() time.Time { return now }
		for range 200 {
			n := g.limit
			for range n {
				if err := g.acquire(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			for range 3 * n { // in steady state: a release, and the next request
				now = now.Add(40 * time.Millisecond / time.Duration(min(n, knee)))
				g.release(8)
				if g.inFlight < min(n, g.limit) {
					_ = g.acquire(t.Context())
				}
			}
			for g.inFlight > 0 {
				g.release(8)
			}
			if !g.held.IsZero() {
				break
			}
		}
		if g.held.IsZero() || g.limit < knee || g.limit > max(2*knee, minFlight) {
			t.Errorf("a model for %d requests has %d in flight, held %v", knee, g.limit, g.held)
		}
	}
}

func TestGateWaits(t *testing.T) {
	t.Parallel()
	g := newGate(1)
	_, _ = g.acquire(t.Context()), g.acquire(t.Context())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.acquire(ctx); err == nil {
		t.Error("the third of two places")
	}
	got := make(chan error)
	go func() { got <- g.acquire(t.Context()) }()
	g.release(1)
	if err := <-got; err != nil {
		t.Error(err)
	}
}

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

// TestGateBrief checks the time of a row that a gate has measured: two instances that execute 8 rows in 20 ms together.
func TestGateBrief(t *testing.T) {
	t.Parallel()
	g, now := newGate(2), time.Unix(0, 0)
	g.now = func() time.Time { return now }
	if n := g.brief(); n < 1024 {
		t.Errorf("before a measurement a request has %d rows", n)
	}
	for range g.limit {
		_ = g.acquire(t.Context())
	}
	for range 2 * g.limit {
		now = now.Add(20 * time.Millisecond)
		g.release(8)
		_ = g.acquire(t.Context())
	}
	if n := g.brief(); n != 4 {
		t.Errorf("a request of 20 ms has %d rows, want 4 of 5 ms", n)
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

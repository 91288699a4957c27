package main

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tutti-server/tutti/internal/telemetry"
)

// bubbleTimer uses the clock of the testing/synctest bubble in which it is created.
type bubbleTimer struct{}

func newBubbleTimer() (taxTimer, error) { return bubbleTimer{}, nil }

// Wait returns when the time is over.
func (bubbleTimer) Wait(d time.Duration) error {
	<-time.After(d)
	return nil
}

// Close does nothing.
func (bubbleTimer) Close() error { return nil }

// TestTaxOfBatches checks that an ensemble reaches the throughput of its slowest step alone. The clock of the
// bubble stands still during computation, so the test measures only how batches are formed and passed on.
func TestTaxOfBatches(t *testing.T) { //nolint:paralleltest // what pools hold belongs to the bubble
	for _, g := range taxGraphs() {
		for _, concurrency := range taxLoads() {
			t.Run(g.name+", "+concurrency.String(), func(t *testing.T) {
				root := t.TempDir()
				if err := g.write(root, concurrency.batch); err != nil {
					t.Fatal(err)
				}
				emptyPools()
				defer emptyPools()
				synctest.Test(t, func(t *testing.T) {
					<-time.After(time.Duration(1 - telemetry.Now())) // the bubble's clock starts before the program did
					taxOfBatches(t, root, &g, concurrency)
				})
			})
		}
	}
}

// emptyPools empties the sync.Pools. Objects from inside a bubble must not be used outside of it, or the reverse.
func emptyPools() {
	runtime.GC()
	runtime.GC() // clears objects that survived the first collection
}

func taxOfBatches(t *testing.T, root string, g *taxGraph, concurrency taxLoad) {
	t.Helper()
	repo, end, err := taxOpen([]string{root}, taxDevices(newBubbleTimer))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	}()
	n := 200 * concurrency.callers
	if testing.Short() {
		n = 50 * concurrency.callers
	}
	repo.infer("ensemble", []string{"IN"}, concurrency.callers, n/4)
	repo.infer(taxModel(g.slowest()), []string{"IN0"}, concurrency.callers, n/4)
	whole, _ := repo.rate("ensemble", []string{"IN"}, concurrency.callers, n)
	alone, _ := repo.rate(taxModel(g.slowest()), []string{"IN0"}, concurrency.callers, n)
	t.Logf("ensemble %.0f/s, slowest step alone %.0f/s, at most %.0f/s: ratio %.3f", whole, alone, g.most(concurrency.batch), whole/alone)
	if whole < taxLeast*alone {
		t.Errorf("ensemble %.0f/s, expected %.2f of its slowest step's %.0f/s", whole, taxLeast, alone)
	}
}

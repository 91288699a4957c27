package main

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tutti-server/tutti/internal/telemetry"
)

// bubbleTimer is one of the testing bubble that it is made in.
type bubbleTimer struct{}

func newBubbleTimer() (taxTimer, error) { return bubbleTimer{}, nil }

// Wait returns when the time is over.
func (bubbleTimer) Wait(d time.Duration) error {
	<-time.After(d)
	return nil
}

// Close does nothing.
func (bubbleTimer) Close() error { return nil }

// TestTaxOfBatches has ensembles answer as many requests in a time as their slowest
// step alone, on a clock that stands still while anything computes: what is left is how
// batches are formed and passed on.
func TestTaxOfBatches(t *testing.T) { //nolint:paralleltest // what pools hold belongs to the bubble
	for _, g := range taxGraphs() {
		for _, crowd := range taxCrowds() {
			t.Run(g.name+", "+crowd.String(), func(t *testing.T) {
				root := t.TempDir()
				if err := g.write(root, crowd.batch); err != nil {
					t.Fatal(err)
				}
				emptyPools()
				defer emptyPools()
				synctest.Test(t, func(t *testing.T) {
					<-time.After(time.Duration(1 - telemetry.Now())) // the bubble's clock begins before the program
					taxOfBatches(t, root, &g, crowd)
				})
			})
		}
	}
}

// emptyPools has pools forget what was made inside or outside of a bubble, which may
// not be used on the other side.
func emptyPools() {
	runtime.GC()
	runtime.GC() // what survived the first one
}

func taxOfBatches(t *testing.T, root string, g *taxGraph, crowd taxCrowd) {
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
	n := 200 * crowd.callers
	if testing.Short() {
		n = 50 * crowd.callers
	}
	repo.ask("ensemble", []string{"IN"}, crowd.callers, n/4)
	repo.ask(taxModel(g.slowest()), []string{"IN0"}, crowd.callers, n/4)
	whole, _ := repo.rate("ensemble", []string{"IN"}, crowd.callers, n)
	alone, _ := repo.rate(taxModel(g.slowest()), []string{"IN0"}, crowd.callers, n)
	t.Logf("ensemble %.0f/s, slowest step alone %.0f/s, at most %.0f/s: ratio %.3f", whole, alone, g.most(crowd.batch), whole/alone)
	if whole < taxLeast*alone {
		t.Errorf("ensemble %.0f/s, expected %.2f of its slowest step's %.0f/s", whole, taxLeast, alone)
	}
}

package durable

import (
	"context"
	"slices"
	"sync"
	"time"
)

// The bounds of a gate.
const (
	minFlight = 2
	maxFlight = 256
	// measureTime is how long one measurement takes at least, holdTime the time until a limit that was found is questioned.
	measureTime = 100 * time.Millisecond
	holdTime    = 15 * time.Second
	worthwhile  = 1.05 // the gain in throughput for which the limit stays raised
)

// gate limits the requests of one model that this worker has in flight, for all chunks together. It looks for the lowest
// limit with the highest throughput: it doubles the limit while this gains at least 5 %, keeps the last limit that did,
// and tries again every 15 seconds. It is safe for concurrent use.
type gate struct {
	mu       sync.Mutex
	limit    int
	inFlight int
	waiting  []chan struct{} // of those that wait for a place, each closed when it has one
	now      func() time.Time
	beside   chan struct{} // has an element for each unit that is in pieces

	begun    time.Time // of the measurement
	rows     int64     // in the measurement
	requests int
	full     bool    // the limit was reached in the measurement
	best     float64 // rows per second with the limit base
	base     int
	held     time.Time // since when the limit is not questioned; zero while it grows
}

func newGate(limit int) *gate {
	limit = min(max(limit, minFlight), maxFlight)
	return &gate{limit: limit, base: limit, now: time.Now, beside: make(chan struct{}, unitsBeside)}
}

// acquire waits for a place. Places are given in the order of the calls.
func (g *gate) acquire(ctx context.Context) error {
	g.mu.Lock()
	if g.inFlight < g.limit && len(g.waiting) == 0 {
		g.enter()
		g.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	g.waiting = append(g.waiting, turn)
	g.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(g.waiting, turn); i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
	} else { // the place came at the same time
		g.leave()
	}
	return ctx.Err()
}

// enter takes a place. The caller holds the lock.
func (g *gate) enter() {
	g.inFlight++
	if g.begun.IsZero() {
		g.begun = g.now()
	}
	g.full = g.full || g.inFlight == g.limit
}

// leave gives a place back, to the one that has waited longest. The caller holds the lock.
func (g *gate) leave() {
	g.inFlight--
	for len(g.waiting) > 0 && g.inFlight < g.limit {
		close(g.waiting[0])
		g.waiting = slices.Delete(g.waiting, 0, 1)
		g.enter()
	}
	if g.inFlight == 0 {
		g.begun, g.rows, g.requests, g.full = time.Time{}, 0, 0, false // idle time is not measured
	}
}

// release gives a place back after a request of some rows.
func (g *gate) release(rows int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.rows += int64(rows)
	g.requests++
	now := g.now()
	if took := now.Sub(g.begun); took >= measureTime && g.requests >= 2*g.limit {
		g.judge(float64(g.rows)/took.Seconds(), now)
		g.begun, g.rows, g.requests, g.full = now, 0, 0, false
	}
	g.leave()
}

// judge adapts the limit to a measured throughput. One that was not limited by the gate says nothing.
func (g *gate) judge(rate float64, now time.Time) {
	switch {
	case !g.full:
	case !g.held.IsZero():
		if now.Sub(g.held) >= holdTime {
			g.held, g.base, g.best = time.Time{}, g.limit, rate
			g.limit = min(2*g.limit, maxFlight)
		}
	case g.best == 0:
		g.base, g.best = g.limit, rate
		g.limit = min(2*g.limit, maxFlight)
	case rate > worthwhile*g.best && g.limit < maxFlight:
		g.base, g.best = g.limit, rate
		g.limit = min(2*g.limit, maxFlight)
	default:
		g.limit, g.held = g.base, now
	}
}

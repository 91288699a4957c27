package durable

import (
	"context"
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
	wake     chan struct{} // closed when a place is free
	now      func() time.Time

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
	return &gate{limit: limit, base: limit, wake: make(chan struct{}), now: time.Now}
}

// acquire waits for a place.
func (g *gate) acquire(ctx context.Context) error {
	for {
		g.mu.Lock()
		if g.inFlight < g.limit {
			g.inFlight++
			if g.begun.IsZero() {
				g.begun = g.now()
			}
			g.full = g.full || g.inFlight == g.limit
			g.mu.Unlock()
			return nil
		}
		wake := g.wake
		g.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-wake:
		}
	}
}

// release gives a place back after a request of some rows.
func (g *gate) release(rows int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inFlight--
	g.rows += int64(rows)
	g.requests++
	now := g.now()
	if took := now.Sub(g.begun); took >= measureTime && g.requests >= 2*g.limit {
		g.judge(float64(g.rows)/took.Seconds(), now)
		g.begun, g.rows, g.requests, g.full = now, 0, 0, false
	}
	if g.inFlight == 0 {
		g.begun, g.rows, g.requests, g.full = time.Time{}, 0, 0, false // idle time is not measured
	}
	close(g.wake)
	g.wake = make(chan struct{})
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

package durable

import (
	"context"
	"math"
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
	// briefTime is how long a request may occupy an instance while online requests are expected: one that comes waits for it.
	briefTime = 20 * time.Millisecond
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

	instances int           // of the model
	took      time.Duration // time of a row at one instance, by the last measurement; 0 before that

	begun    time.Time // of the measurement
	rows     int64     // in the measurement
	requests int
	full     bool    // the limit was reached in the measurement
	best     float64 // rows per second with the limit base
	base     int
	held     time.Time // since when the limit is not questioned; zero while it grows
}

// newGate returns the gate of a model with some instances, which begins with two requests for each.
func newGate(instances int) *gate {
	limit := min(max(2*instances, minFlight), maxFlight)
	return &gate{limit: limit, base: limit, instances: max(instances, 1), now: time.Now, beside: make(chan struct{}, unitsBeside)}
}

// brief returns how many rows a request has that occupies an instance for briefTime, any number while that is not known.
func (g *gate) brief() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.took == 0 {
		return math.MaxInt
	}
	return int(max(briefTime/g.took, 1))
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
		if g.full && g.rows > 0 {
			g.took = max(took*time.Duration(g.instances)/time.Duration(g.rows), 1)
		}
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

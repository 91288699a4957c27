package main

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// traffic sends requests of all flows.
type traffic struct {
	flows []flow
	sum   int // of the weights
	c     *clients
	tally *tally
	seed  uint64
	sent  atomic.Int64
	late  atomic.Int64 // arrivals without a free client
	slow  func()       // called once, when the first request has no response after half of patience; may be nil
	once  sync.Once
}

func newTraffic(flows []flow, c *clients, seed uint64) *traffic {
	t := &traffic{flows: flows, c: c, tally: newTally(), seed: seed}
	for _, f := range flows {
		t.sum += f.weight
	}
	return t
}

// one sends the request of a draw.
func (t *traffic) one(ctx context.Context, draw uint64, impatient bool) {
	r := rand.New(rand.NewPCG(t.seed, draw)) //nolint:gosec // reproducible
	n := r.IntN(t.sum)
	var f *flow
	for i := range t.flows {
		if n -= t.flows[i].weight; n < 0 {
			f = &t.flows[i]
			break
		}
	}
	limit, own := patience, impatient && r.IntN(20) == 0
	if own {
		limit = time.Duration(r.IntN(20_000)) * time.Microsecond
	}
	// The end of the run does not cut requests off.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	t.sent.Add(1)
	if t.slow != nil && !own {
		defer time.AfterFunc(patience/2, func() { t.once.Do(t.slow) }).Stop()
	}
	began := time.Now()
	err := f.send(ctx, t.c, r)
	t.tally.add(f.name, judge(ctx, err, own), time.Since(began), err)
}

// callers is the number of clients that measure the capacity.
const callers = 16

// capacity measures the requests in a second of a closed loop of some clients.
func (t *traffic) capacity(ctx context.Context, d time.Duration, clients int) float64 {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var wg sync.WaitGroup
	var n atomic.Uint64
	began := time.Now()
	for range clients {
		wg.Go(func() {
			for ctx.Err() == nil {
				t.one(ctx, n.Add(1), false)
			}
		})
	}
	wg.Wait()
	return float64(n.Load()) / time.Since(began).Seconds()
}

// mostAtOnce bounds the requests under way. Further arrivals are counted, and not sent.
const mostAtOnce = 256

// run sends requests at a rate, with random gaps, until ctx ends, and waits for the responses.
func (t *traffic) run(ctx context.Context, rate float64) {
	gaps := rand.New(rand.NewPCG(t.seed, 1)) //nolint:gosec // reproducible
	var wg sync.WaitGroup
	slots := make(chan struct{}, mostAtOnce)
	at := time.Now()
	for draw := uint64(1 << 40); ; draw++ {
		at = at.Add(time.Duration(gaps.ExpFloat64() / rate * float64(time.Second)))
		if wait := time.Until(at); wait > time.Millisecond && !pause(ctx, wait) || ctx.Err() != nil {
			break
		}
		select {
		case slots <- struct{}{}:
		default:
			t.late.Add(1)
			continue
		}
		wg.Go(func() {
			defer func() { <-slots }()
			t.one(ctx, draw, true)
		})
	}
	wg.Wait()
}

// randomOf returns the choices of a seed.
func randomOf(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 2)) } //nolint:gosec // reproducible

// Package pending counts what is in flight.
package pending

import (
	"context"
	"sync"
	"sync/atomic"
)

// Count counts tasks in flight and waits until there are none. The zero value is ready to
// use. It is safe for concurrent use.
type Count struct {
	n       atomic.Int64
	waiting atomic.Bool // Wait waits for n to become 0

	mu    sync.Mutex
	empty chan struct{} // closed when n becomes 0; nil unless Wait waits; guarded by mu
}

// Add adds n, which may be negative, to the count.
//
// hot: one atomic add.
func (p *Count) Add(n int) {
	if p.n.Add(int64(n)) == 0 && p.waiting.Load() {
		p.wake()
	}
}

func (p *Count) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.empty != nil {
		p.waiting.Store(false)
		close(p.empty)
		p.empty = nil
	}
}

// Now returns the count.
func (p *Count) Now() int64 { return p.n.Load() }

// Wait blocks until the count is 0, or returns ctx's error.
func (p *Count) Wait(ctx context.Context) error {
	for empty := p.waiter(); empty != nil; empty = p.waiter() {
		select {
		case <-empty:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// waiter returns a channel that is closed when the count becomes 0, nil when it is. It sets
// waiting before it reads the count, so that it cannot miss the last decrement.
func (p *Count) waiter() chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting.Store(true)
	if p.n.Load() == 0 {
		return nil
	}
	if p.empty == nil {
		p.empty = make(chan struct{})
	}
	return p.empty
}

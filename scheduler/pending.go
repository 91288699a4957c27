package scheduler

import (
	"context"
	"sync"
	"sync/atomic"
)

// Pending counts works under way and tells when there are none. The zero value is
// ready to use.
type Pending struct {
	n       atomic.Int64
	waiting atomic.Bool // somebody waits for n to become 0

	mu    sync.Mutex
	empty chan struct{} // closed when n becomes 0, while somebody waits; guarded by mu
}

// Add counts n works in (or out, when n is negative).
//
// hot: one atomic add.
func (p *Pending) Add(n int) {
	if p.n.Add(int64(n)) == 0 && p.waiting.Load() {
		p.wake()
	}
}

func (p *Pending) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.empty != nil {
		p.waiting.Store(false)
		close(p.empty)
		p.empty = nil
	}
}

// Now returns how many works are under way.
func (p *Pending) Now() int64 { return p.n.Load() }

// Wait returns when no work is under way, or with ctx's error.
func (p *Pending) Wait(ctx context.Context) error {
	for empty := p.waiter(); empty != nil; empty = p.waiter() {
		select {
		case <-empty:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// waiter returns a channel that is closed when nothing is under way; nil: now. It
// asks to be woken before it looks, so that the last work cannot slip by.
func (p *Pending) waiter() chan struct{} {
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

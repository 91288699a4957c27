package scheduler

import (
	"context"
	"sync"
	"sync/atomic"
)

// Limiter admits the executions of one instance, for example the rate limiter, or a bound on how many batches a device
// executes at a time. Each instance has one, or nil, which costs nothing.
//
// Lifecycle of an execution: Acquire; if it returned false, the call of resume; the batch;
// Release. Acquire must not be called again before Release.
type Limiter interface {
	// Acquire asks for one execution and does not block. True: the instance may execute. False: it may once resume is
	// called, which happens exactly once; Release must follow even if there is nothing left to execute. resume is the
	// same function in each call. It must not block and may be called before Acquire returns.
	Acquire(resume func()) bool
	// Release ends the execution.
	Release()
}

// Ranked is a Limiter that shares executions out between the instances of a model.
type Ranked interface {
	Limiter
	// Rank orders the free instances: the one with the lowest rank goes first.
	Rank() int64
	// Reacquire is Release and Acquire in one step, for an instance that has more to execute.
	Reacquire() bool
}

// Lease is the state of an instance at its limiter. A zero Lease has no limiter and always
// admits. It is not safe for concurrent use: its owner's lock guards it.
type Lease struct {
	limiter Limiter
	ranked  Ranked // limiter, when it is one
	resume  func()
	state   leaseState
}

type leaseState uint8

const (
	released leaseState = iota
	waiting             // asked, and not admitted yet
	held
)

// NewLease returns a lease at limiter, which may be nil. resume is called when the limiter admits an instance that it
// had refused; it must lead to a call of Admitted under the owner's lock.
func NewLease(limiter Limiter, resume func()) Lease {
	d := Lease{limiter: limiter, resume: resume}
	d.ranked, _ = limiter.(Ranked)
	return d
}

// Acquire reports whether the instance may execute; if not, it asks once.
//
// hot: no allocation.
func (d *Lease) Acquire() bool {
	if d.limiter == nil {
		return true
	}
	if d.state == released {
		d.state = waiting
		if d.limiter.Acquire(d.resume) {
			d.state = held
		}
	}
	return d.state == held
}

// Admitted notes that the limiter has admitted the instance.
func (d *Lease) Admitted() { d.state = held }

// Waiting reports whether the instance has asked and is not admitted yet.
func (d *Lease) Waiting() bool { return d.state == waiting }

// Held reports whether the limiter has admitted the instance.
func (d *Lease) Held() bool { return d.state == held }

// Rank returns the rank of an instance that would have to ask its limiter; ok is false for any other.
func (d *Lease) Rank() (rank int64, ok bool) {
	if d.ranked == nil || d.state != released {
		return 0, false
	}
	return d.ranked.Rank(), true
}

// Release ends an execution; more reports that the instance has more to execute. It does
// nothing unless the lease is held.
func (d *Lease) Release(more bool) {
	switch {
	case d.state != held:
	case more && d.ranked != nil:
		d.state = waiting
		if d.ranked.Reacquire() {
			d.state = held
		}
	default:
		d.state = released
		d.limiter.Release()
	}
}

// Pending counts tasks in flight and waits until there are none. The zero value is ready to
// use. It is safe for concurrent use.
type Pending struct {
	n       atomic.Int64
	waiting atomic.Bool // Wait waits for n to become 0

	mu    sync.Mutex
	empty chan struct{} // closed when n becomes 0; nil unless Wait waits; guarded by mu
}

// Add adds n, which may be negative, to the count.
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

// Now returns the count.
func (p *Pending) Now() int64 { return p.n.Load() }

// Wait blocks until the count is 0, or returns ctx's error.
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

// waiter returns a channel that is closed when the count becomes 0, nil when it is. It sets
// waiting before it reads the count, so that it cannot miss the last decrement.
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

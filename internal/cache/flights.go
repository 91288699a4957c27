package cache

import (
	"sync"
	"sync/atomic"
)

// Flights are the requests that are being computed now, by key. The first one leads
// and is computed; those that ask for the same meanwhile follow it. The zero value is
// ready to use. W is what waits.
//
// A leader that succeeds answers its followers. What becomes of them when it fails is
// the caller's business: a leader whose client has gone says nothing about the
// others, so the next one leads; any other failure may be the leader's own (a full
// queue, a time-out), so each follower is computed by itself, as without a cache.
type Flights[W any] struct {
	ended atomic.Uint64
	mu    sync.Mutex
	air   map[Key]*flight[W] // guarded by mu
	spare []*flight[W]       // guarded by mu
}

// flight is one key that is being computed.
type flight[W any] struct {
	// urgency is the leader's: whoever asks with another may not wait behind it.
	urgency Urgency
	waiting []W
}

// Urgency is what decides how long a request may wait. A request follows only one of
// the same urgency.
type Urgency struct {
	Priority, Timeout uint64
}

// Role is what a request is to the others of its key.
type Role uint8

// The roles.
const (
	// Lead: the request is to be computed, and End called when it is.
	Lead Role = iota
	// Follow: the request is kept until End or Take returns it.
	Follow
	// Alone: the request is to be computed without telling anybody.
	Alone
)

// maxFollowers bounds how many wait for one leader.
const maxFollowers = 1 << 16

// Stamp returns a number that changes whenever a flight ends. Whoever read it before a
// lookup that missed, leads, and finds it changed, looks again: the answer may have
// come between.
func (f *Flights[W]) Stamp() uint64 { return f.ended.Load() }

// Join tells which role a request has.
//
// hot: one short lock.
func (f *Flights[W]) Join(key *Key, u Urgency, w W) Role {
	f.mu.Lock()
	defer f.mu.Unlock()
	if x := f.air[*key]; x != nil {
		if x.urgency != u || len(x.waiting) >= maxFollowers {
			return Alone
		}
		x.waiting = append(x.waiting, w)
		return Follow
	}
	if f.air == nil {
		f.air = map[Key]*flight[W]{}
	}
	var x *flight[W]
	if n := len(f.spare); n > 0 {
		x, f.spare = f.spare[n-1], f.spare[:n-1]
	} else {
		x = new(flight[W])
	}
	x.urgency = u
	f.air[*key] = x
	return Lead
}

// End says that the leader of key is done, and appends those that followed it to
// scratch, in order of arrival.
//
// hot: one short lock.
func (f *Flights[W]) End(key *Key, scratch []W) []W {
	f.ended.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	x := f.air[*key]
	if x == nil {
		return scratch
	}
	delete(f.air, *key)
	scratch = append(scratch, x.waiting...)
	clear(x.waiting)
	x.waiting = x.waiting[:0]
	if len(f.spare) < maxSpare {
		f.spare = append(f.spare, x)
	}
	return scratch
}

// maxSpare is how many flights are kept for reuse.
const maxSpare = 256

// Take appends to scratch the followers for which gone says so, and keeps the others.
// left tells whether any is left.
func (f *Flights[W]) Take(scratch []W, gone func(W) bool) (taken []W, left bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, x := range f.air {
		kept := x.waiting[:0]
		for _, w := range x.waiting {
			if gone(w) {
				scratch = append(scratch, w)
			} else {
				kept = append(kept, w)
			}
		}
		clear(x.waiting[len(kept):])
		x.waiting = kept
		left = left || len(kept) > 0
	}
	return scratch, left
}

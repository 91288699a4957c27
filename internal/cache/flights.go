package cache

import (
	"sync"
	"sync/atomic"
)

// Flights are the requests that are being computed now, by key. The first request of a key leads and is computed;
// identical requests that arrive before it ends follow it. The zero value is ready to use. W is the type of a
// waiting request. It is safe for concurrent use.
//
// The leader's response serves its followers. When the leader fails, the caller decides: after a leader whose
// client disconnected, the next follower leads; any other failure may be the leader's alone (for example a full
// queue, a timeout), so each follower is computed by itself, as without a cache.
type Flights[W any] struct {
	ended    atomic.Uint64
	mu       sync.Mutex
	inFlight map[Key]*flight[W] // guarded by mu
	spare    []*flight[W]       // guarded by mu
}

// flight is one key that is being computed.
type flight[W any] struct {
	// urgency is the leader's. A request with another urgency must not wait for it.
	urgency Urgency
	waiting []W
}

// Urgency is how long a request may wait. A request follows only one of the same urgency.
type Urgency struct {
	Priority, Timeout uint64
}

// Role is the part of a request among the requests of its key.
type Role uint8

// The roles.
const (
	// Lead: the caller computes the request and then calls End.
	Lead Role = iota
	// Follow: the request is kept until End or Take returns it.
	Follow
	// Alone: the caller computes the request and must not call End.
	Alone
)

// maxFollowers bounds the followers of one leader.
const maxFollowers = 1 << 16

// Stamp returns a number that changes whenever a flight ends. A caller reads it before a lookup. If the lookup
// misses, the request leads and the number has changed, the caller looks up again: the response may have been
// stored in between.
func (f *Flights[W]) Stamp() uint64 { return f.ended.Load() }

// Join returns the role of a request. With Follow, w moves to f.
//
// hot: one short lock.
func (f *Flights[W]) Join(key *Key, u Urgency, w W) Role {
	f.mu.Lock()
	defer f.mu.Unlock()
	if x := f.inFlight[*key]; x != nil {
		if x.urgency != u || len(x.waiting) >= maxFollowers {
			return Alone
		}
		x.waiting = append(x.waiting, w)
		return Follow
	}
	if f.inFlight == nil {
		f.inFlight = map[Key]*flight[W]{}
	}
	var x *flight[W]
	if n := len(f.spare); n > 0 {
		x, f.spare = f.spare[n-1], f.spare[:n-1]
	} else {
		x = new(flight[W])
	}
	x.urgency = u
	f.inFlight[*key] = x
	return Lead
}

// End ends the flight of key and appends its followers to scratch, in order of arrival. The leader's caller calls
// it once.
//
// hot: one short lock.
func (f *Flights[W]) End(key *Key, scratch []W) []W {
	f.ended.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	x := f.inFlight[*key]
	if x == nil {
		return scratch
	}
	delete(f.inFlight, *key)
	scratch = append(scratch, x.waiting...)
	clear(x.waiting)
	x.waiting = x.waiting[:0]
	if len(f.spare) < maxSpare {
		f.spare = append(f.spare, x)
	}
	return scratch
}

// maxSpare bounds the flights that are kept for reuse.
const maxSpare = 256

// Take removes the followers for which gone returns true and appends them to scratch. left reports whether others
// remain.
func (f *Flights[W]) Take(scratch []W, gone func(W) bool) (taken []W, left bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, x := range f.inFlight {
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

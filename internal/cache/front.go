package cache

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// Front is the response cache in front of a model or an ensemble, whose requests are of type W. It looks responses up
// and stores them, has identical requests that are in flight computed once, and counts. It is safe for concurrent use.
//
// Lifecycle of a request: (1) Find. After a hit the caller responds with the outputs; as a follower it
// belongs to the Front until Computed or Cancel returns it; (2) otherwise the caller computes it
// and calls Computed, which returns its followers.
//
// For example, of three identical requests the first one leads and is computed, two follow. They get its outputs when
// it succeeds. When its client disconnects, the first follower leads; after any other failure, which may be the
// leader's alone (a full queue, a timeout), each follower is computed by itself (Retry).
type Front[W any] struct {
	*Hashers
	s       FrontSettings[W]
	flights Flights[W]

	mu      sync.Mutex
	sweeper *time.Timer // guarded by mu
	swept   bool        // the sweeper is set, guarded by mu
	closed  bool        // guarded by mu
}

// FrontSettings are the parameters of NewFront.
type FrontSettings[W any] struct {
	Cache    Cache
	Identity Key // Identity distinguishes the loaded version from every other one
	Stats    *telemetry.Model
	// Context and Meta return those of a request.
	Context func(W) context.Context
	Meta    func(W) *infer.Meta
	// Missed is called for a lookup without a hit, before the request may follow. Optional.
	Missed func(w W, now int64)
	// Cancel ends followers whose clients have disconnected. They move to it.
	Cancel func([]W)

	_ struct{}
}

// NewFront returns a Front.
func NewFront[W any](s FrontSettings[W]) *Front[W] {
	return &Front[W]{Hashers: NewHashers(s.Identity), s: s}
}

// Found is the result of Find.
type Found struct {
	Hit       bool // Hit reports that the outputs are those of the response
	Role      Role
	Now, Took int64 // Now is when the first lookup ended, and Took what it took, in ns
}

// Find looks up the response to w and moves its outputs to out. Unless it finds one, w has a role.
//
// hot: no allocation.
func (f *Front[W]) Find(w W, key *Key, out []tensor.Tensor) Found {
	ctx, stamp, began := f.s.Context(w), f.flights.Stamp(), telemetry.Now()
	x := Found{Hit: f.s.Cache.Lookup(ctx, key, out), Role: Alone}
	x.Now = telemetry.Now()
	x.Took = x.Now - began
	if x.Hit {
		return x
	}
	if f.s.Missed != nil {
		f.s.Missed(w, x.Now)
	}
	x.Role = f.join(key, w)
	// Another leader may have ended between the lookup and join.
	x.Hit = x.Role == Lead && stamp != f.flights.Stamp() && f.s.Cache.Lookup(ctx, key, out)
	return x
}

// Computed is an outcome that Front.Computed notes.
type Computed struct {
	Store, Succeeded bool // Store stores the outputs; Succeeded counts the miss
	Leads            bool
	Began, Took      int64 // Began is when storing began, Took the time of the lookup
}

// Computed notes the outcome of a computed request and appends its followers to scratch, in order of arrival.
func (f *Front[W]) Computed(key *Key, out []tensor.Tensor, x Computed, scratch []W) []W {
	if x.Store {
		f.s.Cache.Insert(key, out)
	}
	if x.Succeeded {
		f.s.Stats.Missed(x.Took + telemetry.Now() - x.Began)
	}
	if x.Leads {
		return f.End(key, scratch)
	}
	return scratch
}

// End appends the followers of a leader to scratch, in order of arrival.
func (f *Front[W]) End(key *Key, scratch []W) []W {
	scratch = f.flights.End(key, scratch)
	f.s.Stats.Queued(-int64(len(scratch)))
	return scratch
}

// Retry returns the role of a follower whose leader failed with err.
func (f *Front[W]) Retry(key *Key, w W, err error) Role {
	if status.CodeOf(err) != status.Cancelled {
		return Alone
	}
	return f.join(key, w)
}

// join has w lead or follow. A follower counts as queued.
func (f *Front[W]) join(key *Key, w W) Role {
	m := f.s.Meta(w)
	f.s.Stats.Queued(1) // before the leader may end
	role := f.flights.Join(key, Urgency{Priority: m.Priority, Timeout: m.Timeout, Background: m.Background}, w)
	if role == Follow {
		f.sweepLater()
	} else {
		f.s.Stats.Queued(-1)
	}
	return role
}

// sweepEvery is how long a follower may stay after its client has disconnected.
const sweepEvery = 100 * time.Millisecond

func (f *Front[W]) sweepLater() {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.swept || f.closed:
		return
	case f.sweeper == nil:
		f.sweeper = time.AfterFunc(sweepEvery, f.sweep)
	default:
		f.sweeper.Reset(sweepEvery)
	}
	f.swept = true
}

// sweep cancels the followers whose clients have disconnected.
func (f *Front[W]) sweep() {
	f.mu.Lock()
	f.swept = false
	f.mu.Unlock()
	gone, left := f.flights.Take(nil, func(w W) bool { return f.s.Context(w).Err() != nil })
	if left {
		f.sweepLater()
	}
	if len(gone) > 0 {
		f.s.Stats.Queued(-int64(len(gone)))
		f.s.Cancel(gone)
	}
}

// Close stops the sweeper. No request may be in flight.
func (f *Front[W]) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	if f.sweeper != nil {
		f.sweeper.Stop()
	}
}

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
	urgency Urgency // the leader's. A request with another urgency must not wait for it.
	waiting []W
}

// Urgency is how long a request may wait. A request follows only one of the same urgency.
type Urgency struct {
	Priority, Timeout uint64
	Background        bool
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

package cache

import (
	"context"
	"sync"
	"time"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// Front is the response cache in front of a model or an ensemble, whose requests are of type W. It
// looks responses up and stores them, has identical requests that are in flight computed once, and
// counts. It is safe for concurrent use.
//
// Lifecycle of a request: (1) Find. After a hit the caller responds with the outputs; as a follower it
// belongs to the Front until Computed or Cancel returns it; (2) otherwise the caller computes it
// and calls Computed, which returns its followers.
//
// For example, of three identical requests the first one leads and is computed, two follow. They
// get its outputs when it succeeds. When its client disconnects, the first follower leads; after
// any other failure, which may be the leader's alone (a full queue, a timeout), each follower is
// computed by itself (Retry).
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
	Cache Cache
	// Identity distinguishes the loaded version from every other one.
	Identity Key
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
	// Hit reports that the outputs are those of the response.
	Hit  bool
	Role Role
	// Now is when the first lookup ended, and Took what it took, in ns.
	Now, Took int64
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
	// Store stores the outputs; Succeeded counts the miss.
	Store, Succeeded bool
	Leads            bool
	// Began is when storing began, Took the time of the lookup.
	Began, Took int64
}

// Computed notes the outcome of a computed request and appends its followers to scratch, in order of
// arrival.
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
	role := f.flights.Join(key, Urgency{Priority: m.Priority, Timeout: m.Timeout}, w)
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

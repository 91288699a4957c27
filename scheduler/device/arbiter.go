// Package device limits which instances may execute at the same time: the rate limiter of config.pbtxt, and the
// limits of a device. It also binds executions to cores and memory of the host (Policy).
//
// An Arbiter counts resources. A Demand is the set of resources that one execution of an instance takes: those that
// its rate_limiter names, shared by all devices or counted per device; one of the executions that its device may
// run at a time; its CPU threads. An instance acquires all of them for one execution, or waits. Its tag is the
// number of its executions times its priority. Among the waiting instances, the one whose next execution ends at
// the lowest tag goes first. For example, an instance of priority 1 executes twice as often as one of priority 2
// while both have requests, and starts with its two executions (weighted fair queueing, Demers, Keshav and Shenker
// 1989). Two rules prevent starvation:
//
// - Resources that the first waiting instance lacks are reserved for it: others pass it only with resources that it does not need.
// - An instance that was idle, or is new, joins at the tag that is served now. It does not catch up for the time in which it had no request.
//
// Under a bound of executions without the rate limiter, a tag is the time that the instance has executed, times its priority, and the
// lowest tag goes first (start-time fair queueing, Goyal, Vin and Cheng 1996). So models share a GPU by the time that their batches take:
// with equal priorities one whose batches take 1 ms executes ten times as often as one whose batches take 10 ms, and neither waits for
// more than one batch of the other. The time is the device's where it measures (Limiter.Took), else that from admission to release.
//
// Models whose requests have deadlines share a device otherwise, see Limiter.Bids: when the turn is at one of them, deadlines decide which
// one takes it (deadline.Pick). It pays with the tag of the one whose turn it was, which gets the other tag, so that together they have the
// share that they had.
//
// The arbiter has no goroutine. When nothing is limited, no instance has a Limiter.
package device

import (
	"cmp"
	"log/slog"
	"slices"
	"sync"

	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler/deadline"
)

// Arbiter admits executions of instances as long as there are resources for them. It is safe for concurrent use.
type Arbiter struct {
	s     Settings
	timed bool // tags are times and not numbers of executions

	mu       sync.Mutex
	pools    []pool     // guarded by mu
	size     []int64    // of each pool, guarded by mu
	free     []int64    // of each pool, guarded by mu
	left     []int64    // scratch, guarded by mu
	devices  []*Device  // whose executions are bounded, guarded by mu
	bids     candidates // scratch, guarded by mu
	limiters []*Limiter // of every instance, guarded by mu
	waiting  waitList   // guarded by mu
	clock    int64      // the highest tag admitted, guarded by mu
}

// Settings are the parameters of New.
type Settings struct {
	// RateLimit makes instances acquire the resources of their rate_limiter.
	RateLimit bool
	// Limits are the amounts of those resources. Without any, each resource has the amount that the largest demand
	// needs; with at least one, a resource that is not listed has the amount 0.
	Limits []Limit
	// Executions bounds the executions of a device at a time, 0 for no bound.
	Executions int
	// Threads bounds the threads of executions on the CPU, 0 for no bound. A single execution may have more.
	Threads int
	// Log receives the amounts of resources at level debug whenever they change. Optional.
	Log *slog.Logger
	// Clock returns the time in nanoseconds; nil for telemetry.Now.
	Clock func() int64

	_ struct{}
}

// EveryDevice is the Device of a Limit that applies to each device separately.
const EveryDevice = -1

// Limit is the amount of a resource.
type Limit struct {
	Name  string
	Count int64
	// Device is the number of the device, or EveryDevice. Of a shared resource the largest limit counts.
	Device int
}

// New returns an arbiter without instances.
func New(s Settings) *Arbiter {
	if s.Clock == nil {
		s.Clock = telemetry.Now
	}
	return &Arbiter{s: s, timed: s.Executions > 0 && !s.RateLimit}
}

// Limiter admits the executions of one instance; see scheduler.Limiter.
type Limiter struct {
	arbiter  *Arbiter
	needs    []need
	priority int64
	device   *Device       // whose executions are bounded; nil for none
	bid      *deadline.Bid // set once, guarded by the arbiter's mu

	// The rest is guarded by the arbiter's mu.
	tag    int64
	in     bool
	since  int64   // when it was admitted, if tags are times
	ends   int64   // when its execution is expected to end, 0 for unknown
	took   int64   // by the device for the newest execution that it measured, 0 where nothing is measured
	early  []int64 // what the executions that are not measured yet have added to the tag, per priority
	resume func()
	after  *Limiter // the next one of those admitted together
}

// need is the amount of a pool that an execution takes.
type need struct {
	resource int
	count    int64
}

// Acquire takes the resources that the instance needs, or adds it to the waiting instances.
//
// hot: one lock, no allocation once the list has had its longest length.
func (g *Limiter) Acquire(resume func()) bool {
	return g.arbiter.update(g, func() {
		g.resume = resume
		g.wait()
	})
}

// update changes the state of the arbiter and resumes the instances that can execute then, except self, whose caller
// gets the result: whether it may execute. A limiter may be in another chain as soon as resume is called, so its
// successor is read before.
func (a *Arbiter) update(self *Limiter, change func()) (in bool) {
	a.mu.Lock()
	change()
	let := a.serve()
	in = self != nil && self.in
	a.mu.Unlock()
	for let != nil {
		g := let
		let, g.after = g.after, nil
		if g != self {
			g.resume()
		}
	}
	return in
}

// wait adds g to the waiting instances. Called with the lock held.
func (g *Limiter) wait() {
	g.tag = max(g.tag, g.arbiter.clock)
	g.arbiter.waiting.add(g)
}

// Reacquire is Release and Acquire in one step: the instance waits again before its resources go to another one.
//
// hot: one lock, no allocation.
func (g *Limiter) Reacquire() bool {
	return g.arbiter.update(g, func() {
		g.arbiter.release(g)
		g.wait()
	})
}

// Release returns the instance's resources and admits the instances that can execute now.
//
// hot: one lock, no allocation.
func (g *Limiter) Release() { g.arbiter.update(nil, func() { g.arbiter.release(g) }) }

// maxEarly bounds the executions that are not measured yet: those that failed never are.
const maxEarly = 16

// Took tells how long the device took for an execution, which may have been released before. Tags are then the device's time and not that
// of the host. The first one only starts that.
//
// hot: one lock, no allocation.
func (g *Limiter) Took(ns int64) {
	a := g.arbiter
	a.mu.Lock()
	defer a.mu.Unlock()
	g.took = max(ns, 1)
	if n := len(g.early); n > 0 {
		g.tag += g.priority * (ns - g.early[0])
		g.early = slices.Delete(g.early, 0, max(1, n-maxEarly))
		if i := slices.Index(a.waiting, g); i >= 0 {
			a.waiting = slices.Delete(a.waiting, i, i+1)
			a.waiting.add(g)
		}
	}
}

// Rank orders the free instances of a model: the one with the lowest rank goes first.
func (g *Limiter) Rank() int64 {
	g.arbiter.mu.Lock()
	defer g.arbiter.mu.Unlock()
	return g.tag
}

// release returns the resources of g. Called with the lock held.
func (a *Arbiter) release(g *Limiter) {
	if !g.in {
		return
	}
	g.in = false
	if a.timed {
		ns := a.s.Clock() - g.since
		if g.took > 0 { // the host is done before the device is: as long as the one before, until Took corrects it
			ns = g.took
			g.early = append(g.early, ns)
		}
		g.tag += g.priority * ns
	}
	for _, n := range g.needs {
		a.free[n.resource] += n.count
	}
}

// serve admits the instances that can execute and returns them as a chain. Called with the lock held.
func (a *Arbiter) serve() *Limiter {
	var let, last *Limiter
	for len(a.waiting) > 0 {
		i := a.waiting.next(a.free, a.left)
		if i < 0 {
			break
		}
		i = a.pick(i)
		g := a.waiting[i]
		a.waiting = slices.Delete(a.waiting, i, i+1)
		g.in = true
		for _, n := range g.needs {
			a.free[n.resource] -= n.count
		}
		a.clock = max(a.clock, g.tag)
		if g.tag += g.step(); a.timed {
			g.since = a.s.Clock()
			g.begin()
		}
		if g.after = nil; last == nil {
			let = g
		} else {
			last.after = g
		}
		last = g
	}
	return let
}

// Waiting returns the number of waiting instances.
func (a *Arbiter) Waiting() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.waiting)
}

// waitList has the waiting instances by the tag after the next execution, then by priority, then by arrival.
type waitList []*Limiter

// before reports whether g, which arrived later, goes before h: by the tag after its next execution, then by priority.
func (g *Limiter) before(h *Limiter) bool {
	return cmp.Or(cmp.Compare(g.tag+g.step(), h.tag+h.step()), cmp.Compare(g.priority, h.priority)) < 0
}

// step is what the next execution adds to the tag in advance: nothing if tags are times, which are known afterwards.
func (g *Limiter) step() int64 {
	if g.arbiter.timed {
		return 0
	}
	return g.priority
}

// add inserts g in order.
func (l *waitList) add(g *Limiter) {
	i := len(*l)
	for i > 0 && g.before((*l)[i-1]) {
		i--
	}
	*l = slices.Insert(*l, i, g)
}

// next returns the position of the first instance whose needs are met by free, or -1. The needs of an earlier
// instance are reserved for it, even if they are not all free yet, so that they accumulate until it can execute.
// left is scratch of the size of free.
//
// It is pure: the same list and the same free resources give the same result.
func (l waitList) next(free, left []int64) int {
	copy(left, free)
	for i, g := range l {
		if !slices.ContainsFunc(g.needs, func(n need) bool { return left[n.resource] < n.count }) {
			return i
		}
		for _, n := range g.needs {
			left[n.resource] -= n.count
		}
	}
	return -1
}

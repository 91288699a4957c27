package device

import (
	"log/slog"
	"sync"
)

// Arbiter admits executions of instances as long as there are resources for them. It is safe for concurrent use.
type Arbiter struct {
	s Settings

	mu       sync.Mutex
	pools    []pool     // guarded by mu
	size     []int64    // of each pool, guarded by mu
	free     []int64    // of each pool, guarded by mu
	left     []int64    // scratch, guarded by mu
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
	// Threads bounds the total threads of executions on the CPU, 0 for no bound. A single execution may have more
	// when it is alone.
	Threads int
	// Log receives the amounts of resources at level debug whenever they change. Optional.
	Log *slog.Logger

	_ struct{}
}

// EveryDevice is the Device of a Limit that applies to each device separately.
const EveryDevice = -1

// Limit is the amount of a resource.
type Limit struct {
	Name  string
	Count int64
	// Device is the number of the device, or EveryDevice. For a resource that devices share, the largest of its
	// limits counts, whichever device it names.
	Device int
}

// New returns an arbiter without instances.
func New(s Settings) *Arbiter { return &Arbiter{s: s} }

// Limiter admits the executions of one instance; see scheduler.Limiter.
type Limiter struct {
	arbiter  *Arbiter
	needs    []need
	priority int64

	// The rest is guarded by the arbiter's mu.
	tag    int64
	in     bool
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
// hot: one lock, no allocation once the line has had its longest length.
func (g *Limiter) Acquire(resume func()) bool {
	a := g.arbiter
	a.mu.Lock()
	g.resume = resume
	let := a.enqueue(g)
	in := g.in
	a.mu.Unlock()
	resumeAll(let, g)
	return in
}

// enqueue adds g to the waiting instances and returns those that are admitted. Called with the lock held.
func (a *Arbiter) enqueue(g *Limiter) *Limiter {
	g.tag = max(g.tag, a.clock)
	a.waiting.add(g)
	return a.serve()
}

// Reacquire is Release and Acquire in one step: the instance waits again before its resources go to another one.
//
// hot: one lock, no allocation.
func (g *Limiter) Reacquire() bool {
	a := g.arbiter
	a.mu.Lock()
	a.release(g)
	let := a.enqueue(g)
	in := g.in
	a.mu.Unlock()
	resumeAll(let, g)
	return in
}

// Release returns the instance's resources and admits the instances that can execute now.
//
// hot: one lock, no allocation.
func (g *Limiter) Release() {
	a := g.arbiter
	a.mu.Lock()
	a.release(g)
	let := a.serve()
	a.mu.Unlock()
	resumeAll(let, nil)
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
		g := a.waiting[i]
		a.waiting.remove(i)
		a.admit(g)
		if g.after = nil; last == nil {
			let = g
		} else {
			last.after = g
		}
		last = g
	}
	return let
}

// admit takes the resources of g. Called with the lock held.
func (a *Arbiter) admit(g *Limiter) {
	g.in = true
	for _, n := range g.needs {
		a.free[n.resource] -= n.count
	}
	a.clock = max(a.clock, g.tag)
	g.tag += g.priority
}

// resumeAll calls resume of the admitted limiters of a chain, except self, whose caller sees the admission itself.
// Called without the lock. A limiter may be in another chain as soon as resume is called, so its successor is read
// before.
func resumeAll(let, self *Limiter) {
	for let != nil {
		g := let
		let, g.after = g.after, nil
		if g != self {
			g.resume()
		}
	}
}

// Waiting returns the number of waiting instances.
func (a *Arbiter) Waiting() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.waiting)
}

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
// The arbiter has no goroutine and no clock. When nothing is limited, no instance has a Limiter, and executing
// costs nothing more.
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

// waitList has the waiting instances in order: the lowest tag after the next execution first, then the lowest
// priority value, then the order of arrival.
type waitList []*Limiter

// before reports whether g goes before h, whichever arrived first.
func (g *Limiter) before(h *Limiter) bool {
	if a, b := g.end(), h.end(); a != b {
		return a < b
	}
	return g.priority < h.priority
}

// end is the tag of the instance after its next execution.
func (g *Limiter) end() int64 { return g.tag + g.priority }

// add inserts g in order.
func (l *waitList) add(g *Limiter) {
	*l = append(*l, g)
	list := *l
	i := len(list) - 1
	for ; i > 0 && g.before(list[i-1]); i-- {
		list[i] = list[i-1]
	}
	list[i] = g
}

// remove removes the i-th instance.
func (l *waitList) remove(i int) {
	list := *l
	copy(list[i:], list[i+1:])
	list[len(list)-1] = nil
	*l = list[:len(list)-1]
}

// index returns the position of g, or -1.
func (l waitList) index(g *Limiter) int {
	for i := range l {
		if l[i] == g {
			return i
		}
	}
	return -1
}

// next returns the position of the first instance whose needs are met by free, or -1. The needs of an earlier
// instance are reserved for it, even if they are not all free yet, so that they accumulate until it can execute.
// left is scratch of the size of free.
//
// It is pure: the same list and the same free resources give the same result.
func (l waitList) next(free, left []int64) int {
	copy(left, free)
	for i, g := range l {
		if g.fits(left) {
			return i
		}
		for _, n := range g.needs {
			left[n.resource] -= n.count
		}
	}
	return -1
}

// fits reports whether left covers all that g needs.
func (g *Limiter) fits(left []int64) bool {
	for _, n := range g.needs {
		if left[n.resource] < n.count {
			return false
		}
	}
	return true
}

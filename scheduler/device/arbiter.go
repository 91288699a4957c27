package device

import (
	"log/slog"
	"sync"
)

// Arbiter lets instances execute as far as there are resources for it. It is safe for
// concurrent use.
type Arbiter struct {
	s Settings

	mu    sync.Mutex
	pools []pool     // guarded by mu
	size  []int64    // of each pool, guarded by mu
	free  []int64    // of each pool, guarded by mu
	left  []int64    // scratch, guarded by mu
	gates []*Limiter // of every instance, guarded by mu
	line  line       // guarded by mu
	clock int64      // the tag served last, guarded by mu
}

// Settings are what an Arbiter is made with.
type Settings struct {
	// RateLimit has instances take the resources that their rate_limiter names.
	RateLimit bool
	// Limits say how much there is of each of those. Without any there is as much as
	// the instance that needs most; with one, what is not listed is not there.
	Limits []Limit
	// Executions bounds how many executions a device runs at a time, 0 for no bound.
	Executions int
	// Threads bounds how many threads executions on the CPU have together, 0 for no
	// bound. One execution may have more when it is alone.
	Threads int
	// Log, when not nil, gets at level debug how much of each resource there is when that changes.
	Log *slog.Logger

	_ struct{}
}

// EveryDevice is the Device of a Limit that each device has for itself.
const EveryDevice = -1

// Limit is how much there is of a resource.
type Limit struct {
	Name  string
	Count int64
	// Device is the number of the device that has it, or EveryDevice. For a resource
	// that devices share, the largest of its limits counts, whatever device it names.
	Device int
}

// New returns an arbiter that knows no instance yet.
func New(s Settings) *Arbiter { return &Arbiter{s: s} }

// Gate is the gate of one instance; see scheduler.Gate.
type Limiter struct {
	arbiter  *Arbiter
	needs    []need
	priority int64

	// The rest is guarded by the arbiter's mu.
	tag    int64
	in     bool
	resume func()
	after  *Limiter // the next of those let in together
}

// need is how much of a pool an execution takes.
type need struct {
	resource int
	count    int64
}

// Enter takes what the instance needs, or gets in line for it.
//
// hot: one lock, no allocation once the line has had its longest length.
func (g *Limiter) Acquire(resume func()) bool {
	a := g.arbiter
	a.mu.Lock()
	g.resume = resume
	let := a.queue(g)
	in := g.in
	a.mu.Unlock()
	resumeAll(let, g)
	return in
}

// queue puts g in line and returns who can go; called with the lock held.
func (a *Arbiter) queue(g *Limiter) *Limiter {
	g.tag = max(g.tag, a.clock)
	a.line.add(g)
	return a.serve()
}

// Reacquire is Leave and Enter at once: the instance is in line before what it gave back
// goes to another.
//
// hot: one lock, no allocation.
func (g *Limiter) Reacquire() bool {
	a := g.arbiter
	a.mu.Lock()
	a.release(g)
	let := a.queue(g)
	in := g.in
	a.mu.Unlock()
	resumeAll(let, g)
	return in
}

// Leave gives back what the instance took, and lets in who can go now.
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

// Rank orders the instances of a model that are all free: the one with the lowest goes
// first.
func (g *Limiter) Rank() int64 {
	g.arbiter.mu.Lock()
	defer g.arbiter.mu.Unlock()
	return g.tag
}

// release gives back what g holds; called with the lock held.
func (a *Arbiter) release(g *Limiter) {
	if !g.in {
		return
	}
	g.in = false
	for _, n := range g.needs {
		a.free[n.resource] += n.count
	}
}

// serve lets in whoever can go, and returns them chained; called with the lock held.
func (a *Arbiter) serve() *Limiter {
	var let, last *Limiter
	for len(a.line) > 0 {
		i := a.line.next(a.free, a.left)
		if i < 0 {
			break
		}
		g := a.line[i]
		a.line.remove(i)
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

// admit takes what g needs; called with the lock held.
func (a *Arbiter) admit(g *Limiter) {
	g.in = true
	for _, n := range g.needs {
		a.free[n.resource] -= n.count
	}
	a.clock = max(a.clock, g.tag)
	g.tag += g.priority
}

// resumeAll tells a chain of gates that they are in, but for self, who sees so itself;
// called without the lock. A gate that was told may be in another chain at once, so
// that it is asked for the next before.
func resumeAll(let, self *Limiter) {
	for let != nil {
		g := let
		let, g.after = g.after, nil
		if g != self {
			g.resume()
		}
	}
}

// InLine returns how many instances wait.
func (a *Arbiter) InLine() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.line)
}

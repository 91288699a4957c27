package device

import (
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/status"
)

// Demand is what one execution of an instance needs.
type Demand struct {
	// Device is the number of the instance's device. The CPU has 0, as in Triton, and shares the resources of GPU 0.
	Device int
	// OnCPU reports that it executes on the CPU, with Threads threads.
	OnCPU   bool
	Threads int
	// Resources are those of its rate_limiter; of two with the same name the last counts.
	Resources []Resource
	// Priority is that of its rate_limiter; 0 stands for 1.
	Priority uint32
}

// Resource is a part of an instance's rate_limiter.
type Resource struct {
	Name string
	// Shared resources exist once for all devices; others exist once per device.
	Shared bool
	Count  int64
}

// The kinds of pools.
const (
	perDevice = iota
	shared
	executions
	threads
)

// pool identifies a counted resource.
type pool struct {
	kind   int
	name   string
	device int
}

// Register adds the instances of a model and returns their limiters, nil for an instance that nothing limits. Close
// of a Limiter, or of the Group, removes them. Register returns an error, and changes nothing, when an instance
// needs more than exists or uses a shared resource as one per device.
func (a *Arbiter) Register(demands []Demand) (g *Group, err error) {
	g = &Group{arbiter: a}
	a.update(nil, func() {
		before := len(a.limiters)
		for i := range demands {
			g.Limiters = append(g.Limiters, a.newLimiter(&demands[i]))
		}
		size, failed := a.measure()
		if failed != nil {
			clear(a.limiters[before:])
			a.limiters = a.limiters[:before]
			g, err = nil, failed
			return
		}
		a.resize(size)
	})
	return g, err
}

// Group has the limiters of a model's instances.
type Group struct {
	arbiter *Arbiter
	// Limiters are by instance; nil for one that nothing limits.
	Limiters []*Limiter
}

// Close removes the instances and releases what they hold. It may be called on nil and more than once.
func (g *Group) Close() {
	if g != nil {
		g.arbiter.remove(g.Limiters)
	}
}

// Close removes the limiter's instance, as Group.Close does with all. It may be called on nil and more than once.
func (g *Limiter) Close() {
	if g != nil {
		g.arbiter.remove([]*Limiter{g})
	}
}

// remove removes instances and releases what they hold.
func (a *Arbiter) remove(limiters []*Limiter) {
	a.update(nil, func() {
		gone := func(x *Limiter) bool { return slices.Contains(limiters, x) }
		a.limiters = slices.DeleteFunc(a.limiters, gone)
		a.waiting = slices.DeleteFunc(a.waiting, gone)
		for _, x := range limiters {
			if x != nil {
				a.release(x)
				x.needs = nil // a later Acquire is admitted at once
				x.leave()
			}
		}
		if size, err := a.measure(); err == nil { // fewer instances never need more
			a.resize(size)
		}
	})
}

// newLimiter returns the limiter of an instance, or nil if nothing limits it. Called with the lock held.
func (a *Arbiter) newLimiter(d *Demand) *Limiter {
	g := &Limiter{arbiter: a, priority: int64(max(d.Priority, 1)), tag: a.clock}
	if a.s.RateLimit {
		for _, r := range d.Resources {
			p := pool{kind: perDevice, name: r.Name, device: d.Device}
			if r.Shared {
				p.kind, p.device = shared, 0
			}
			g.need(a.pool(p), r.Count)
		}
	}
	if a.s.Executions > 0 {
		p := pool{kind: executions, device: d.Device}
		if d.OnCPU {
			p.device = -1
		}
		g.need(a.pool(p), 1)
		if a.timed {
			g.device = a.device(p.device)
		}
	}
	if a.s.Threads > 0 && d.OnCPU && d.Threads > 0 {
		g.need(a.pool(pool{kind: threads}), int64(min(d.Threads, a.s.Threads)))
	}
	if !a.s.RateLimit && len(g.needs) == 0 {
		return nil
	}
	a.limiters = append(a.limiters, g)
	return g
}

// need sets the amount of a pool that one execution takes.
func (g *Limiter) need(p int, n int64) {
	if i := slices.IndexFunc(g.needs, func(x need) bool { return x.resource == p }); i >= 0 {
		g.needs[i].count = n
		return
	}
	g.needs = append(g.needs, need{p, n})
}

// pool returns the position of a pool. It adds the pool if it is missing.
func (a *Arbiter) pool(p pool) int {
	i := slices.Index(a.pools, p)
	if i < 0 {
		i = len(a.pools)
		a.pools = append(a.pools, p)
		a.size, a.free, a.left = append(a.size, 0), append(a.free, 0), append(a.left, 0)
	}
	return i
}

// measure returns the sizes of the pools for the current instances.
func (a *Arbiter) measure() ([]int64, error) {
	size, used := make([]int64, len(a.pools)), make([]bool, len(a.pools))
	for _, g := range a.limiters {
		for _, n := range g.needs {
			size[n.resource] = max(size[n.resource], n.count)
			used[n.resource] = true
		}
	}
	for i, p := range a.pools {
		switch {
		case !used[i]:
		case p.kind == executions:
			size[i] = int64(a.s.Executions)
		case p.kind == threads:
			size[i] = int64(a.s.Threads)
		case a.usedPerDevice(p, used):
			return nil, status.Errorf(status.InvalidArg,
				"Resource \"%s\" is present as both global and device-specific resource in the model configuration.", p.name)
		case len(a.s.Limits) > 0:
			there := a.limit(p)
			if there < size[i] {
				return nil, status.Errorf(status.InvalidArg,
					"Resource count for \"%s\" is limited to %d which will prevent scheduling of one or more model instances, the minimum required count is %d",
					p.name, there, size[i])
			}
			size[i] = there
		}
	}
	return size, nil
}

// usedPerDevice reports whether a shared resource is also used per device.
func (a *Arbiter) usedPerDevice(p pool, used []bool) bool {
	if p.kind != shared {
		return false
	}
	for i, other := range a.pools {
		if used[i] && other.kind == perDevice && other.name == p.name {
			return true
		}
	}
	return false
}

// limit returns the amount of a named resource that the settings grant.
func (a *Arbiter) limit(p pool) int64 {
	there := int64(0)
	for _, l := range a.s.Limits {
		if l.Name == p.name && (p.kind == shared || l.Device == EveryDevice || l.Device == p.device) {
			there = max(there, l.Count)
		}
	}
	return there
}

// resize sets the sizes of the pools; acquired resources stay acquired.
func (a *Arbiter) resize(size []int64) {
	changed := !slices.Equal(a.size, size)
	for i, n := range size {
		a.free[i] += n - a.size[i]
		a.size[i] = n
	}
	if changed && a.s.Log != nil {
		a.s.Log.Debug(a.resources()) //nolint:sloglint // the text is Triton's, which people look for
	}
	if len(a.limiters) == 0 { // no limiter refers to the pools
		a.pools, a.size, a.free, a.left = a.pools[:0], a.size[:0], a.free[:0], a.left[:0]
	}
}

// resources lists the amount of each rate_limiter resource in Triton's words.
func (a *Arbiter) resources() string {
	var b strings.Builder
	b.WriteString("\nMax Resource Map===>\n")
	for i, p := range a.pools {
		if p.kind != perDevice && p.kind != shared || a.size[i] == 0 {
			continue
		}
		at := "GLOBAL"
		if p.kind == perDevice {
			at = strconv.Itoa(p.device)
		}
		b.WriteString("\tDevice: " + at + "\n\t\tResource: " + p.name + "\t Count: " + strconv.FormatInt(a.size[i], 10) + "\n")
	}
	return b.String()
}

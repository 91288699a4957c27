package device

import (
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/status"
)

// Ask is what one instance needs for an execution.
type Ask struct {
	// Device is the number of its device. The CPU has 0, as in Triton, where what is
	// kept per device is shared by the CPU and GPU 0.
	Device int
	// OnCPU tells that it executes on the CPU, with that many threads.
	OnCPU   bool
	Threads int
	// Resources are those of its rate_limiter; of two with one name the last counts.
	Resources []Resource
	// Priority is that of its rate_limiter; 0 is 1.
	Priority uint32
}

// Resource is a part of an instance's rate_limiter.
type Resource struct {
	Name string
	// Shared resources are one for all devices; any other is there on each.
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

// pool is a resource somewhere.
type pool struct {
	kind   int
	name   string
	device int
}

// Register adds the instances of a model and returns a gate each, nil for one that
// nothing limits. Close of a gate, or of the group, takes them out again. It fails, and changes nothing, when
// one needs more than there is or uses a shared resource as one per device.
func (a *Arbiter) Register(asks []Ask) (*Group, error) {
	g := &Group{arbiter: a, Gates: make([]*Limiter, len(asks))}
	let, err := a.add(g, asks)
	if err != nil {
		return nil, err
	}
	resumeAll(let, nil)
	return g, nil
}

// add makes the gates of g and returns who can go because there is more now.
func (a *Arbiter) add(g *Group, asks []Ask) (*Limiter, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := len(a.gates)
	for i := range asks {
		g.Gates[i] = a.gate(&asks[i])
	}
	size, err := a.measure()
	if err != nil {
		clear(a.gates[before:])
		a.gates = a.gates[:before]
		return nil, err
	}
	a.resize(size)
	return a.serve(), nil
}

// Group is the gates of a model's instances.
type Group struct {
	arbiter *Arbiter
	// Gates are by instance; nil for one that nothing limits.
	Gates []*Limiter
}

// Close takes the instances out. What one still holds is free. Safe on nil and to call
// twice.
func (g *Group) Close() {
	if g != nil {
		g.arbiter.remove(g.Gates)
	}
}

// Close takes the gate's instance out, as Group.Close does with all. Safe on nil and to
// call twice.
func (g *Limiter) Close() {
	if g != nil {
		g.arbiter.remove([]*Limiter{g})
	}
}

// remove takes instances out.
func (a *Arbiter) remove(gates []*Limiter) {
	a.mu.Lock()
	a.gates = slices.DeleteFunc(a.gates, func(x *Limiter) bool { return slices.Contains(gates, x) })
	for _, x := range gates {
		if x == nil {
			continue
		}
		a.release(x)
		x.needs = nil // whoever still comes is not held up
		if i := a.line.index(x); i >= 0 {
			a.line.remove(i)
		}
	}
	if size, err := a.measure(); err == nil { // fewer instances never ask for more
		a.resize(size)
	}
	let := a.serve()
	a.mu.Unlock()
	resumeAll(let, nil)
}

// gate makes the gate of an instance, or nil; called with the lock held.
func (a *Arbiter) gate(ask *Ask) *Limiter {
	g := &Limiter{arbiter: a, priority: int64(max(ask.Priority, 1)), tag: a.clock}
	if a.s.RateLimit {
		for _, r := range ask.Resources {
			p := pool{kind: perDevice, name: r.Name, device: ask.Device}
			if r.Shared {
				p.kind, p.device = shared, 0
			}
			g.need(a.pool(p), r.Count)
		}
	}
	if a.s.Executions > 0 {
		p := pool{kind: executions, device: ask.Device}
		if ask.OnCPU {
			p.device = -1
		}
		g.need(a.pool(p), 1)
	}
	if a.s.Threads > 0 && ask.OnCPU && ask.Threads > 0 {
		g.need(a.pool(pool{kind: threads}), int64(min(ask.Threads, a.s.Threads)))
	}
	if !a.s.RateLimit && len(g.needs) == 0 {
		return nil
	}
	a.gates = append(a.gates, g)
	return g
}

// need sets how much of a pool g takes.
func (g *Limiter) need(p int, n int64) {
	for i := range g.needs {
		if g.needs[i].resource == p {
			g.needs[i].count = n
			return
		}
	}
	g.needs = append(g.needs, need{p, n})
}

// pool returns the position of a pool, which it adds when it is not there.
func (a *Arbiter) pool(p pool) int {
	i := slices.Index(a.pools, p)
	if i < 0 {
		i = len(a.pools)
		a.pools = append(a.pools, p)
		a.size, a.free, a.left = append(a.size, 0), append(a.free, 0), append(a.left, 0)
	}
	return i
}

// measure returns how large the pools are with the instances that there are.
func (a *Arbiter) measure() ([]int64, error) {
	size, used := make([]int64, len(a.pools)), make([]bool, len(a.pools))
	for _, g := range a.gates {
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
		case a.twice(p, used):
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

// twice reports whether a shared resource is used per device as well.
func (a *Arbiter) twice(p pool, used []bool) bool {
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

// limit returns how much of a named resource the settings grant.
func (a *Arbiter) limit(p pool) int64 {
	there := int64(0)
	for _, l := range a.s.Limits {
		if l.Name == p.name && (p.kind == shared || l.Device == EveryDevice || l.Device == p.device) {
			there = max(there, l.Count)
		}
	}
	return there
}

// resize gives the pools another size; what is taken stays taken.
func (a *Arbiter) resize(size []int64) {
	changed := !slices.Equal(a.size, size)
	for i, n := range size {
		a.free[i] += n - a.size[i]
		a.size[i] = n
	}
	if changed && a.s.Log != nil {
		a.s.Log.Debug(a.resources()) //nolint:sloglint // the text is Triton's, which people look for
	}
	if len(a.gates) == 0 { // nobody refers to them
		a.pools, a.size, a.free, a.left = a.pools[:0], a.size[:0], a.free[:0], a.left[:0]
	}
}

// resources lists in Triton's words how much there is of each resource of a rate_limiter.
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

package sim

import (
	"math"
	"slices"
	"sort"
)

// Policy decides which requests execute, in which order, and which are dropped.
type Policy uint8

// The policies.
const (
	// Triton is first in, first out, with the limit as the time-out of each queue.
	Triton Policy = iota
	// Today is first in, first out, with one deadline for the graph: what has expired is never executed.
	Today
	// Nexus gives each node a fixed part of the limit, orders by it and drops what a batch would complete too late for its node
	// (Shen et al., SOSP 2019).
	Nexus
	// EarlyDrop drops what a batch and the rest of the path would complete too late, with known times (PARD, arXiv 2602.08747).
	EarlyDrop
	// Deadline is the server's policy, with times that it learns.
	Deadline
)

// PolicyInfo describes a policy.
type PolicyInfo struct {
	Policy Policy
	// Name is that of tutti simulate, Doc a clause about what it does.
	Name, Doc string
}

// Policies are all policies.
var Policies = []PolicyInfo{
	{Triton, "triton", "first in, first out; the limit is the time-out of each queue"},
	{Today, "today", "first in, first out, one deadline; what has expired is never executed"},
	{Nexus, "nexus", "each step has a fixed part of the limit"},
	{EarlyDrop, "early-drop", "drops what the rest of the path would complete too late"},
	{Deadline, "deadline", "the server's own, with times that it learns"},
}

// policy is a Policy in a simulation.
type policy interface {
	// admit reports whether an arriving request enters the graph.
	admit(r *request) bool
	// enqueue puts a task into a node's queue.
	enqueue(n *node, t *task)
	// next takes the next batch of a device out of its queue.
	next(d *device) (*node, []*task)
	// observe is told how long a batch has taken.
	observe(n *node, rows int, took float64)
}

func (p Policy) start(x *simulation) policy {
	b := base{x: x}
	switch p {
	case Nexus:
		return newNexus(b)
	case EarlyDrop:
		return &early{base: b}
	case Deadline:
		return newServer(b)
	case Today:
		return &fifo{base: b}
	case Triton:
	}
	return &fifo{base: b, perQueue: true}
}

// base is what policies share.
type base struct{ x *simulation }

func (*base) admit(*request) bool         { return true }
func (*base) observe(*node, int, float64) {}

// insert adds a task to a queue in the order of due, and of arrival.
func insert(n *node, t *task) {
	i := sort.Search(len(n.queue), func(i int) bool { return n.queue[i].due > t.due })
	n.queue = slices.Insert(n.queue, i, t)
}

// fifo is Triton and Today.
type fifo struct {
	base
	perQueue bool
}

func (*fifo) enqueue(n *node, t *task) { n.queue = append(n.queue, t) }

// next takes the node whose first task has waited longest.
func (f *fifo) next(d *device) (*node, []*task) {
	var best *node
	for _, n := range d.nodes {
		n.queue = f.expire(n.queue)
		if len(n.queue) > 0 && n.busy < n.Instances && (best == nil || n.queue[0].enqueued < best.queue[0].enqueued) {
			best = n
		}
	}
	if best == nil {
		return nil, nil
	}
	return best, best.pop(best.MaxBatch)
}

// expire drops the tasks at the head of a queue whose time has passed.
func (f *fifo) expire(queue []*task) []*task {
	return slices.DeleteFunc(queue, func(t *task) bool {
		expires := t.r.deadline
		if f.perQueue {
			expires = t.enqueued + float64(f.x.s.Limit)
		}
		if t.r.gone || f.x.now >= expires {
			f.x.drop(t.r)
			return true
		}
		return false
	})
}

// pop takes the first tasks of the queue.
func (n *node) pop(most int) []*task {
	k := min(most, len(n.queue))
	batch := slices.Clone(n.queue[:k])
	n.queue = n.queue[k:]
	return batch
}

// nexus splits the limit over the nodes of the longest path, in proportion to their full batches.
type nexus struct {
	base
	until []float64 // by node: the part of the limit until its end
}

func newNexus(b base) *nexus {
	p := &nexus{base: b, until: make([]float64, len(b.x.nodes))}
	longest := 0.0
	for i, n := range b.x.nodes {
		for _, a := range n.After {
			p.until[i] = max(p.until[i], p.until[a])
		}
		p.until[i] += n.time(n.MaxBatch)
		longest = max(longest, p.until[i])
	}
	for i := range p.until {
		p.until[i] *= float64(b.x.s.Limit) / longest
	}
	return p
}

func (p *nexus) enqueue(n *node, t *task) {
	t.due = t.r.arrived + p.until[n.index]
	insert(n, t)
}

func (p *nexus) next(d *device) (*node, []*task) {
	return earliest(d, func(n *node) []*task {
		return form(p.x, n, func(t *task) float64 { return t.due }, n.time)
	})
}

// earliest tries the device's nodes in the order of their first due time.
func earliest(d *device, form func(n *node) []*task) (*node, []*task) {
	nodes := slices.Clone(d.nodes)
	slices.SortStableFunc(nodes, func(a, b *node) int {
		switch {
		case len(a.queue) == 0 || len(b.queue) == 0:
			return len(b.queue) - len(a.queue)
		case a.queue[0].due < b.queue[0].due:
			return -1
		}
		return 1
	})
	for _, n := range nodes {
		if n.busy >= n.Instances {
			continue
		}
		if batch := form(n); len(batch) > 0 {
			return n, batch
		}
	}
	return nil, nil
}

// form takes a batch off the head of a queue: a task that the batch would complete too late is dropped, and the batch shrinks with the
// number of tasks that are left.
func form(x *simulation, n *node, due func(*task) float64, time func(rows int) float64) (batch []*task) {
	size := min(n.MaxBatch, len(n.queue))
	fin := x.now + time(size)
	i := 0
	for ; i < len(n.queue) && len(batch) < size; i++ {
		t := n.queue[i]
		if t.r.gone {
			continue
		}
		if left := len(n.queue) - i + len(batch); left < size {
			size = left
			fin = x.now + time(size)
		}
		if fin > due(t) {
			x.drop(t.r)
			continue
		}
		batch = append(batch, t)
	}
	n.queue = n.queue[i:]
	return batch
}

// early is PARD's two-sided early drop with least budget first.
type early struct{ base }

func (*early) enqueue(n *node, t *task) {
	t.due = t.r.deadline
	insert(n, t)
}

func (p *early) next(d *device) (*node, []*task) {
	rest := p.rest()
	return earliest(d, func(n *node) []*task {
		return form(p.x, n, func(t *task) float64 { return t.r.deadline - rest[n.index] }, n.time)
	})
}

// rest returns by node how long a request takes from the node's end to its own.
func (p *early) rest() []float64 {
	rest := make([]float64, len(p.x.nodes))
	for i := len(rest) - 1; i >= 0; i-- {
		for _, reader := range p.x.readers[i] {
			n := p.x.nodes[reader]
			queued := math.Ceil(float64(len(n.queue))/float64(n.MaxBatch)) * n.time(n.MaxBatch) / float64(n.Instances)
			size := min(max(len(n.queue), 1), n.MaxBatch)
			rest[i] = max(rest[i], queued+1.5*n.time(size)+rest[reader])
		}
	}
	return rest
}

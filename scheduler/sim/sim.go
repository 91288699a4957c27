// Package sim simulates requests with deadlines as discrete events in virtual time.
//
// It answers what part of the offered requests a graph of models answers in time, under a policy: the server's own, or one of those that
// it is compared with. For example, a chain of two models that share a device, at 1.2 times its capacity:
//
//	g := sim.Graph{Nodes: []sim.Node{
//		{Name: "detect", Fixed: 2 * time.Millisecond, PerRow: time.Millisecond, MaxBatch: 16},
//		{Name: "classify", After: []int{0}, Fixed: time.Millisecond, PerRow: time.Millisecond / 2, MaxBatch: 16},
//	}}
//	a := sim.Poisson(1.2*g.Capacity(), time.Minute, 1)
//	o := sim.Run(&sim.Scenario{Graph: g, Arrivals: a, Limit: 100 * time.Millisecond, Policy: sim.Early})
//	fmt.Println(o.Goodput(), o.Bound)
package sim

import (
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Node is a step of a graph: a model with its own queue.
type Node struct {
	Name string
	// After are the positions of the nodes whose outputs the node reads; all of them lie before it.
	After []int
	// A batch of n rows takes Fixed + n*PerRow.
	Fixed, PerRow time.Duration
	MaxBatch      int
	// Instances is how many batches execute at a time, 0 for 1.
	Instances int
	// Device is the number of the device that executes the node's batches, one at a time, together with those of the other nodes of that
	// number. 0 is a device of the node alone, for each instance.
	Device int
	// Share is the part of the requests that execute the node, as behind a condition; the others skip it. 0 is all.
	Share float64
}

// time returns how long a batch takes.
func (n *Node) time(rows int) float64 { return float64(n.Fixed) + float64(rows)*float64(n.PerRow) }

// share is Share, with its default.
func (n *Node) share() float64 {
	if n.Share <= 0 {
		return 1
	}
	return min(n.Share, 1)
}

// Graph is a graph of nodes, each behind those that it reads.
type Graph struct {
	Nodes []Node
}

// Check returns an error that names what is wrong with a graph.
func (g *Graph) Check() error {
	if len(g.Nodes) == 0 {
		return fmt.Errorf("the graph has no step")
	}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		switch {
		case n.MaxBatch < 1:
			return fmt.Errorf("step '%s': the largest batch is %d rows, expected at least 1", n.Name, n.MaxBatch)
		case n.Fixed < 0 || n.PerRow < 0 || n.Fixed+n.PerRow == 0:
			return fmt.Errorf("step '%s': a batch takes %v and %v a row, expected times above 0", n.Name, n.Fixed, n.PerRow)
		case n.Instances < 0:
			return fmt.Errorf("step '%s': %d instances, expected at least 1", n.Name, n.Instances)
		}
		for _, a := range n.After {
			if a < 0 || a >= i {
				return fmt.Errorf("step '%s' reads step %d, expected one before it", n.Name, a)
			}
		}
	}
	return nil
}

// Capacity returns how many requests per second the graph executes with full batches.
func (g *Graph) Capacity() float64 {
	perDevice := map[int]float64{} // seconds of a request
	least := math.Inf(1)
	for i := range g.Nodes {
		n := &g.Nodes[i]
		each := n.time(n.MaxBatch) / float64(n.MaxBatch) * n.share() / float64(time.Second)
		if n.Device != 0 {
			perDevice[n.Device] += each
			continue
		}
		least = min(least, float64(max(n.Instances, 1))/each)
	}
	for _, each := range perDevice {
		least = min(least, 1/each)
	}
	return least
}

// Shortest returns how long a request takes that executes alone.
func (g *Graph) Shortest() time.Duration {
	ends, last := make([]float64, len(g.Nodes)), 0.0
	for i := range g.Nodes {
		for _, a := range g.Nodes[i].After {
			ends[i] = max(ends[i], ends[a])
		}
		ends[i] += g.Nodes[i].time(1)
		last = max(last, ends[i])
	}
	return time.Duration(last)
}

// Scenario is one simulation.
type Scenario struct {
	Graph    Graph
	Arrivals Arrivals
	// Limit is how long after its arrival a request must be done.
	Limit time.Duration
	// Noise is the coefficient of variation of the times of batches.
	Noise  float64
	Seed   uint64
	Policy Policy
}

// Outcome is what became of the requests of a scenario.
type Outcome struct {
	Offered, InTime, Late int
	// Refused were refused on arrival, Dropped later.
	Refused, Dropped int
	// Bound is an upper bound of the part that can be done in time by any policy that knows the future.
	Bound float64
	// Busy is the time that devices executed, Wasted the part of it for requests that were not done in time.
	Busy, Wasted time.Duration
	P50, P99     time.Duration // of requests that were executed to their end
}

// Goodput returns the part of the offered requests that were done in time.
func (o *Outcome) Goodput() float64 { return float64(o.InTime) / float64(max(o.Offered, 1)) }

// Waste returns the part of the devices' time for requests that were not done in time.
func (o *Outcome) Waste() float64 { return float64(o.Wasted) / float64(max(o.Busy, 1)) }

// Run simulates a scenario. Equal scenarios have equal outcomes.
func Run(s *Scenario) Outcome {
	x := &simulation{s: s, noise: random(s.Seed ^ 0x6e6f), readers: make([][]int, len(s.Graph.Nodes))}
	for i := range s.Graph.Nodes {
		x.nodes = append(x.nodes, newNode(&s.Graph.Nodes[i], i))
		for _, a := range s.Graph.Nodes[i].After {
			x.readers[a] = append(x.readers[a], i)
		}
	}
	x.assignDevices()
	x.policy = s.Policy.start(x)
	for _, at := range s.Arrivals {
		x.out.Offered++
		x.at(float64(at), func() { x.arrive(float64(at)) })
	}
	for len(x.events) > 0 {
		e := heap.Pop(&x.events).(event) //nolint:errcheck // it has no other type
		x.now = e.at
		e.do()
	}
	slices.Sort(x.latency)
	if n := len(x.latency); n > 0 {
		x.out.P50, x.out.P99 = x.latency[n/2], x.latency[min(n-1, n*99/100)]
	}
	x.out.Bound = bound(s)
	return x.out
}

// simulation is the state of one Run.
type simulation struct {
	s       *Scenario
	now     float64 // ns
	nodes   []*node
	devices []*device
	readers [][]int // by node: the nodes that read its outputs
	policy  policy
	events  events
	serial  int
	noise   *rand.Rand
	latency []time.Duration
	out     Outcome
}

// request is one request on its way through the graph.
type request struct {
	arrived, deadline float64
	missing           []int // by node: inputs that have not arrived
	left              int   // nodes that are not done
	spent             float64
	gone              bool
}

// node is a node with its queue.
type node struct {
	*Node
	index  int
	device *device
	queue  []*task
	busy   int // instances that execute
}

// task is a request at a node.
type task struct {
	r        *request
	enqueued float64
	due      float64 // by the policy
}

// device executes batches of its nodes, so many at a time.
type device struct {
	nodes  []*node
	slots  int
	busy   int
	freeAt float64 // when an instance is expected to be free
}

func newNode(n *Node, i int) *node {
	c := *n
	c.Instances = max(c.Instances, 1)
	return &node{Node: &c, index: i}
}

func (x *simulation) assignDevices() {
	shared := map[int]*device{}
	for _, n := range x.nodes {
		d := shared[n.Device]
		if n.Device == 0 || d == nil {
			d = &device{slots: 1}
			if n.Device == 0 {
				d.slots = n.Instances
			} else {
				shared[n.Device] = d
			}
			x.devices = append(x.devices, d)
		}
		d.nodes = append(d.nodes, n)
		n.device = d
	}
}

func (x *simulation) arrive(at float64) {
	r := &request{arrived: at, deadline: at + float64(x.s.Limit), missing: make([]int, len(x.nodes)), left: len(x.nodes)}
	if !x.policy.admit(r) {
		x.out.Refused++
		return
	}
	for i, n := range x.nodes {
		r.missing[i] = len(n.After)
	}
	for i, n := range x.nodes {
		if len(n.After) == 0 {
			x.enter(r, i)
		}
	}
}

// enter brings a request to a node.
func (x *simulation) enter(r *request, i int) {
	n := x.nodes[i]
	if s := n.share(); s < 1 && x.noise.Float64() >= s {
		x.leave(r, i)
		return
	}
	t := &task{r: r, enqueued: x.now}
	x.policy.enqueue(n, t)
	x.serve(n.device)
}

// serve starts batches while the device is free.
func (x *simulation) serve(d *device) {
	for d.busy < d.slots {
		n, batch := x.policy.next(d)
		if len(batch) == 0 {
			return
		}
		x.execute(n, batch)
	}
}

func (x *simulation) execute(n *node, batch []*task) {
	n.busy++
	n.device.busy++
	took := n.time(len(batch)) * x.factor()
	n.device.freeAt = x.now + n.time(len(batch))
	x.at(x.now+took, func() {
		n.busy--
		n.device.busy--
		x.out.Busy += time.Duration(took)
		x.policy.observe(n, len(batch), took)
		for _, t := range batch {
			t.r.spent += took / float64(len(batch))
			if t.r.gone { // another branch of it was dropped
				x.out.Wasted += time.Duration(took / float64(len(batch)))
				continue
			}
			x.leave(t.r, n.index)
		}
		x.serve(n.device)
	})
}

// factor is the noise of one batch's time: log-normal with mean 1.
func (x *simulation) factor() float64 {
	if x.s.Noise <= 0 {
		return 1
	}
	v := math.Log(1 + x.s.Noise*x.s.Noise)
	return math.Exp(math.Sqrt(v)*x.noise.NormFloat64() - v/2)
}

// leave sends a request on: to the nodes that read the node's outputs, or back to its client.
func (x *simulation) leave(r *request, i int) {
	if r.left--; r.left == 0 {
		x.latency = append(x.latency, time.Duration(x.now-r.arrived))
		if x.now <= r.deadline {
			x.out.InTime++
		} else {
			x.out.Late++
			x.out.Wasted += time.Duration(r.spent)
		}
		return
	}
	for _, reader := range x.readers[i] {
		if r.missing[reader]--; r.missing[reader] == 0 && !r.gone {
			x.enter(r, reader)
		}
	}
}

// drop ends a request that is in no queue any more.
func (x *simulation) drop(r *request) {
	if !r.gone {
		r.gone = true
		x.out.Dropped++
		x.out.Wasted += time.Duration(r.spent)
	}
}

func (x *simulation) at(when float64, do func()) {
	x.serial++
	heap.Push(&x.events, event{when, x.serial, do})
}

// event is a function to call at a time.
type event struct {
	at     float64
	serial int
	do     func()
}

// events is a heap of events by time, those of one time in the order of their making.
type events []event

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (a events) Len() int { return len(a) }
func (a events) Less(i, j int) bool {
	return a[i].at < a[j].at || a[i].at == a[j].at && a[i].serial < a[j].serial
}
func (a events) Swap(i, j int) { a[i], a[j] = a[j], a[i] }

// Push implements heap.Interface.
func (a *events) Push(x any) { *a = append(*a, x.(event)) } //nolint:errcheck // no other type is pushed

// Pop implements heap.Interface.
func (a *events) Pop() any {
	old := *a
	last := old[len(old)-1]
	old[len(old)-1] = event{}
	*a = old[:len(old)-1]
	return last
}

// bound returns an upper bound of the part of the requests that any policy can answer in time: each request takes its share of a full
// batch at the graph's bottleneck, one after the other, and must leave it before its limit less the least time of the rest of the path.
// Requests of equal size and limit are best executed in the order of arrival without those that would be late.
func bound(s *Scenario) float64 {
	each := float64(time.Second) / s.Graph.Capacity()
	left, free, done := float64(s.Limit), 0.0, 0
	if s.Limit < s.Graph.Shortest() {
		return 0
	}
	for _, at := range s.Arrivals {
		if end := max(free, float64(at)) + each; end <= float64(at)+left {
			free = end
			done++
		}
	}
	return float64(done) / float64(max(len(s.Arrivals), 1))
}

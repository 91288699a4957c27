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
//	o := sim.Run(&sim.Scenario{Graph: g, Arrivals: a, Limit: 100 * time.Millisecond, Policy: sim.EarlyDrop})
//	fmt.Println(o.Goodput(), o.Bound)
package sim

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

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
	x := &simulation{s: s, noise: random(s.Seed ^ noiseSeed), readers: make([][]int, len(s.Graph.Nodes))}
	for i := range s.Graph.Nodes {
		x.nodes = append(x.nodes, newNode(&s.Graph.Nodes[i], i))
		for _, a := range s.Graph.Nodes[i].After {
			x.readers[a] = append(x.readers[a], i)
		}
	}
	x.assignDevices()
	x.policy = s.Policy.start(x)
	for i, at := range s.Arrivals {
		x.out.Offered++
		x.at(float64(at), func() { x.arrive(i, float64(at)) })
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

// noiseSeed makes the noise differ from the arrivals of the same seed.
const noiseSeed = 0x6e6f

// request is one request on its way through the graph.
type request struct {
	index             int // in the scenario's arrivals
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
	nodes   []*node
	slots   int
	running []float64 // when each batch under way is expected to end
}

// freeAt returns when the device is expected to start another batch.
func (d *device) freeAt(now float64) float64 {
	if len(d.running) < d.slots {
		return now
	}
	return max(now, slices.Min(d.running))
}

// ended removes a batch.
func (d *device) ended(expected float64) {
	i := slices.Index(d.running, expected)
	d.running = slices.Delete(d.running, i, i+1)
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

func (x *simulation) arrive(index int, at float64) {
	r := &request{index: index, arrived: at, deadline: at + float64(x.s.Limit), missing: make([]int, len(x.nodes)), left: len(x.nodes)}
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
	x.serveAll()
}

// serveAll starts batches at all devices that are free.
func (x *simulation) serveAll() {
	for _, d := range x.devices {
		x.serve(d)
	}
}

// enter brings a request to a node.
func (x *simulation) enter(r *request, i int) {
	n := x.nodes[i]
	if !x.s.executes(r.index, i) {
		x.leave(r, i)
		return
	}
	t := &task{r: r, enqueued: x.now}
	x.policy.enqueue(n, t)
}

// serve starts batches while the device is free.
func (x *simulation) serve(d *device) {
	for len(d.running) < d.slots {
		n, batch := x.policy.next(d)
		if len(batch) == 0 {
			return
		}
		x.execute(n, batch)
	}
}

func (x *simulation) execute(n *node, batch []*task) {
	n.busy++
	expected := x.now + n.time(len(batch))
	n.device.running = append(n.device.running, expected)
	took := n.time(len(batch)) * x.factor()
	x.at(x.now+took, func() {
		n.busy--
		n.device.ended(expected)
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
		x.serveAll()
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

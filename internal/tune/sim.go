package tune

import (
	"container/heap"
	"math"
	"slices"
	"time"

	"github.com/tutti-server/tutti/internal/load"
)

// Scenario is one simulation: settings, a machine and arrivals.
type Scenario struct {
	Network  *Network
	Settings []Setting // by model
	Cores    int
	Overhead Overhead
	// Arrivals are the times at which requests arrive, ascending.
	Arrivals []time.Duration
}

// Overhead is what requests cost outside their models.
type Overhead struct {
	// CPU is the processor time of a request outside its models: the client's side, decoding and encoding.
	CPU time.Duration
	// Wait is the part of the latency that uses no processor.
	Wait time.Duration
	// Slowdown multiplies the times of executions: under load caches hold less than alone. 0 is 1.
	Slowdown float64
}

// Outcome is the result of a simulation or of a run.
type Outcome struct {
	P50, P99, Mean time.Duration
	Throughput     float64 // responses per second, from the first arrival to the last response
	CPU            float64 // cores in use on average
	// Batches is the mean number of rows of an execution, by model. Only of a simulation.
	Batches []float64
}

// perRequest returns the processor time of a request, 0 without responses.
func (o *Outcome) perRequest() time.Duration {
	if o.Throughput <= 0 {
		return 0
	}
	return time.Duration(o.CPU / o.Throughput * float64(time.Second))
}

// Simulate executes a scenario as discrete events in virtual time. Equal scenarios have equal outcomes.
//
// The batching policies are those of the server. Requests of one batch go on together. A step without a queue executes
// on the goroutine that completed the step before.
func Simulate(s *Scenario) (Outcome, error) {
	x := &simulation{s: s, cores: cores{count: float64(s.Cores)}, slow: s.Overhead.Slowdown}
	if x.slow == 0 {
		x.slow = 1
	}
	for i := range s.Network.Models {
		q, err := newBatcher(x, i)
		if err != nil {
			return Outcome{}, err
		}
		x.batchers = append(x.batchers, q)
	}
	x.readers = make([][]int, len(s.Network.Nodes))
	for i := range s.Network.Nodes {
		for _, before := range s.Network.Nodes[i].After {
			x.readers[before] = append(x.readers[before], i)
		}
	}
	x.run()
	return x.outcome(), nil
}

// simulation is the state of one Simulate.
type simulation struct {
	s        *Scenario
	cores    cores
	slow     float64
	batchers []*batcher
	readers  [][]int // by node: the nodes that read its outputs
	alarms   alarms
	latency  []time.Duration
	last     float64 // the time of the last response
}

// request is one request on its way through the network.
type request struct {
	arrived float64
	sample  *Sample
	missing []int8 // by node: inputs that have not arrived
	left    int    // nodes that have not executed
}

// run handles arrivals, timers and ends of executions in the order of time.
func (x *simulation) run() {
	for next := 0; ; {
		arrival, timer := math.Inf(1), math.Inf(1)
		if next < len(x.s.Arrivals) {
			arrival = float64(x.s.Arrivals[next])
		}
		if len(x.alarms) > 0 {
			timer = x.alarms[0].at
		}
		end := x.cores.next()
		at := min(arrival, timer, end)
		if math.IsInf(at, 1) {
			return
		}
		x.cores.advance(max(at, x.cores.now))
		switch at {
		case end: // advance has handled it
		case arrival:
			x.arrive(next)
			next++
		default:
			heap.Pop(&x.alarms).(*alarm).ring() //nolint:errcheck // it has no other type
		}
	}
}

// arrive begins a request: half of its overhead is before its first step.
func (x *simulation) arrive(i int) {
	n := x.s.Network
	r := &request{arrived: float64(x.s.Arrivals[i]), sample: &n.Samples[i%len(n.Samples)], missing: make([]int8, len(n.Nodes)), left: len(n.Nodes)}
	for k := range n.Nodes {
		r.missing[k] = int8(len(n.Nodes[k].After)) //nolint:gosec // a step has few inputs
	}
	x.cores.begin(float64(x.s.Overhead.CPU)/2*x.slow, 1, 0, func() {
		for k := range n.Nodes {
			if len(n.Nodes[k].After) == 0 {
				x.enter([]*request{r}, k)
			}
		}
	})
}

// enter brings requests that go on together to a node.
func (x *simulation) enter(group []*request, node int) {
	q := x.batchers[x.s.Network.Nodes[node].Model]
	if !q.inline {
		for _, r := range group {
			q.push(r, node)
		}
		q.serve()
		return
	}
	var b Batch
	for _, r := range group {
		b.add(&r.sample.Sizes[node])
	}
	q.count(&b)
	wall := q.cost.Wall(&b)
	x.cores.begin(wall*x.slow, q.cost.Width, q.cost.interference(wall), func() { x.leave(group, node) })
}

// leave sends requests on whose node is done: to the nodes that read its outputs, or back to their clients.
func (x *simulation) leave(group []*request, node int) {
	for _, r := range group {
		if r.left--; r.left == 0 {
			x.cores.begin(float64(x.s.Overhead.CPU)/2*x.slow, 1, 0, func() { x.respond(r) })
		}
	}
	for _, reader := range x.readers[node] {
		ready := make([]*request, 0, len(group))
		for _, r := range group {
			if r.missing[reader]--; r.missing[reader] == 0 {
				ready = append(ready, r)
			}
		}
		if len(ready) > 0 {
			x.enter(ready, reader)
		}
	}
}

func (x *simulation) respond(r *request) {
	x.last = x.cores.now + float64(x.s.Overhead.Wait)
	x.latency = append(x.latency, time.Duration(x.last-r.arrived))
}

func (x *simulation) outcome() Outcome {
	slices.Sort(x.latency)
	o := Outcome{P50: load.Percentile(x.latency, 0.5), P99: load.Percentile(x.latency, 0.99)}
	if len(x.latency) == 0 || x.last <= 0 {
		return o
	}
	for _, l := range x.latency {
		o.Mean += l / time.Duration(len(x.latency))
	}
	elapsed := time.Duration(x.last - float64(x.s.Arrivals[0]))
	o.Throughput = float64(len(x.latency)) / max(elapsed, 1).Seconds()
	o.CPU = x.cores.used / float64(max(elapsed, 1))
	for _, q := range x.batchers {
		o.Batches = append(o.Batches, float64(q.total)/float64(max(q.executed, 1)))
	}
	return o
}

// at has a function called at a time.
func (x *simulation) at(when float64, ring func()) *alarm {
	t := &alarm{at: when, ring: ring}
	heap.Push(&x.alarms, t)
	return t
}

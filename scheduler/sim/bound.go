package sim

import (
	"slices"
	"time"
)

// bound returns an upper bound of the part of the requests that any policy can answer in time, also one that knows all arrivals.
//
// A device takes at least the time of a full batch, divided by its rows, for each request of a node. With batches as small as that, and
// without waiting for other devices, requests of equal size are best executed in the order of arrival, without those that would be late.
// The least of the devices bounds the graph.
func bound(s *Scenario) float64 {
	possible := make([]int, 0, len(s.Arrivals)) // requests that are in time when they execute alone
	for r := range s.Arrivals {
		if s.Graph.alone(func(n int) bool { return s.executes(r, n) }) <= float64(s.Limit) {
			possible = append(possible, r)
		}
	}
	least := len(possible)
	for _, nodes := range s.Graph.devices() {
		least = min(least, s.inTime(nodes, possible))
	}
	return float64(least) / float64(max(len(s.Arrivals), 1))
}

// inTime returns an upper bound of how many of the requests a device with these nodes can execute in time.
func (s *Scenario) inTime(nodes, requests []int) int {
	head, tail := s.Graph.around(nodes)
	window := float64(s.Limit) - head - tail + rounding
	var costs []float64
	var arrivals Arrivals
	free := len(requests) // requests that no node of the device executes
	for _, r := range requests {
		cost := 0.0
		for _, n := range nodes {
			if s.executes(r, n) {
				cost += s.Graph.Nodes[n].each()
			}
		}
		if cost > 0 {
			costs, arrivals = append(costs, cost), append(arrivals, s.Arrivals[r])
			free--
		}
	}
	if len(costs) == 0 {
		return free
	}
	slices.Sort(costs)
	// All requests cost what the lightest does, or all of the time is used for the lightest ones, whenever they arrive.
	return free + min(inOrder(arrivals, costs[0], window), fit(costs, float64(arrivals[len(arrivals)-1]-arrivals[0])+window))
}

// rounding is what sums of times may be wrong by, in ns.
const rounding = 1

// inOrder counts the arrivals that are executed within a window, one after the other and each for a time.
func inOrder(arrivals Arrivals, each, window float64) (n int) {
	free := 0.0
	for _, at := range arrivals {
		if end := max(free, float64(at)) + each; end <= float64(at)+window {
			free = end
			n++
		}
	}
	return n
}

// fit counts the costs, ascending, that fit into a time.
func fit(costs []float64, time float64) (n int) {
	for _, c := range costs {
		if time -= c; time < 0 {
			return n
		}
		n++
	}
	return n
}

// executes reports whether a request executes a node. It is the same for all policies.
func (s *Scenario) executes(request, node int) bool {
	share := s.Graph.Nodes[node].share()
	return share >= 1 || uniform(s.Seed, uint64(request), uint64(node)) < share //nolint:gosec // positions are not negative
}

// uniform returns a number from 0 to 1 that depends on nothing but its arguments (splitmix64).
func uniform(numbers ...uint64) float64 {
	x := uint64(0)
	for _, n := range numbers {
		x += n + 0x9e3779b97f4a7c15
		x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
		x = (x ^ x>>27) * 0x94d049bb133111eb
		x ^= x >> 31
	}
	return float64(x>>11) / (1 << 53)
}

// each returns the least time of the node's device for a request: that of a row of a full batch, in one of its instances.
func (n *Node) each() float64 {
	each := n.time(n.MaxBatch) / float64(n.MaxBatch)
	if n.Device == 0 {
		each /= float64(max(n.Instances, 1))
	}
	return each
}

// devices returns the nodes of each device.
func (g *Graph) devices() (list [][]int) {
	at := map[int]int{}
	for i := range g.Nodes {
		d := g.Nodes[i].Device
		if k, ok := at[d]; ok && d != 0 {
			list[k] = append(list[k], i)
			continue
		}
		at[d] = len(list)
		list = append(list, []int{i})
	}
	return list
}

// alone returns how long a request takes that executes alone, in the nodes that it executes.
func (g *Graph) alone(executes func(node int) bool) (last float64) {
	ends := g.ends(executes)
	return max(0, slices.Max(ends))
}

// ends returns when each node of a request is done that executes alone.
func (g *Graph) ends(executes func(node int) bool) []float64 {
	ends := make([]float64, len(g.Nodes))
	for i := range g.Nodes {
		for _, a := range g.Nodes[i].After {
			ends[i] = max(ends[i], ends[a])
		}
		if executes(i) {
			ends[i] += g.Nodes[i].time(1)
		}
	}
	return ends
}

// around returns the least time of a request before the first of some nodes, and behind the last.
func (g *Graph) around(nodes []int) (head, tail float64) {
	always := func(n int) bool { return g.Nodes[n].share() >= 1 }
	ends := g.ends(always)
	behind := make([]float64, len(g.Nodes)) // by node
	for i := len(g.Nodes) - 1; i >= 0; i-- {
		own := behind[i]
		if always(i) {
			own += g.Nodes[i].time(1)
		}
		for _, a := range g.Nodes[i].After {
			behind[a] = max(behind[a], own)
		}
	}
	for k, i := range nodes {
		begins := 0.0
		for _, a := range g.Nodes[i].After {
			begins = max(begins, ends[a])
		}
		if k == 0 {
			head, tail = begins, behind[i]
		}
		head, tail = min(head, begins), min(tail, behind[i])
	}
	return head, tail
}

// Shortest returns how long a request takes that executes alone, in all nodes.
func (g *Graph) Shortest() time.Duration {
	return time.Duration(g.alone(func(int) bool { return true }))
}

// Capacity returns how many requests per second the graph executes with full batches.
func (g *Graph) Capacity() float64 {
	most := 0.0 // ns of a device for a request
	for _, nodes := range g.devices() {
		each := 0.0
		for _, n := range nodes {
			each += g.Nodes[n].each() * g.Nodes[n].share()
		}
		most = max(most, each)
	}
	return float64(time.Second) / most
}

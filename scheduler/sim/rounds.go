package sim

import "math"

// Rounds returns what part of the requests the best schedule in rounds completes in time, if all arrivals are known before. A round is
// a batch that executes all steps one after the other. It is defined for exact times and a chain of steps on one device, which all
// requests execute; ok is false for others.
//
// It shows what can be attained, from below: the best of all schedules, for example those that join two batches at a later step, has at
// least as many requests in time, and at most the bound.
//
// All requests have the same limit. So exchanging requests between rounds shows two things: rounds can serve requests in the order of
// arrival, and a round whose last request is given should have the n requests that arrived last up to it, because they are due last. The
// least time at which k of the first i requests are done then follows from those of fewer requests.
func Rounds(s *Scenario) (part float64, ok bool) {
	most, ok := s.Graph.round()
	if !ok || s.Noise > 0 {
		return 0, false
	}
	takes := make([]float64, most+1)
	for i := range s.Graph.Nodes {
		for n := range takes {
			takes[n] += s.Graph.Nodes[i].time(n)
		}
	}
	limit := float64(s.Limit) + rounding
	// A schedule that is behind another one by more requests than fit into the limit never catches up.
	behind := (int(limit/takes[most]) + 2) * most
	ring := make([]frontier, most+1) // of the last most+1 requests
	ring[0] = frontier{ends: []float64{0}}
	for i := range s.Arrivals {
		last := &ring[i%len(ring)]
		next := &ring[(i+1)%len(ring)]
		next.clear(last, behind)
		for n := 1; n <= min(most, i+1); n++ {
			from := &ring[(i+1-n)%len(ring)]
			for j, free := range from.ends {
				end := max(free, float64(s.Arrivals[i])) + takes[n]
				if end <= float64(s.Arrivals[i+1-n])+limit {
					next.set(from.least+j+n, end)
				}
			}
		}
	}
	best := &ring[len(s.Arrivals)%len(ring)]
	return float64(best.least+len(best.ends)-1) / float64(max(len(s.Arrivals), 1)), true
}

// round returns the most requests of a round. ok is false unless the graph is a chain on one device.
func (g *Graph) round() (most int, ok bool) {
	most = math.MaxInt
	for i := range g.Nodes {
		n := &g.Nodes[i]
		chained := len(n.After) == 1 && n.After[0] == i-1 || i == 0
		if !chained || n.Device != g.Nodes[0].Device || n.Device == 0 && len(g.Nodes) > 1 || n.Instances > 1 || n.share() < 1 {
			return 0, false
		}
		most = min(most, n.MaxBatch)
	}
	return most, true
}

// frontier has the least time at which a number of requests is done, for each number from least on.
type frontier struct {
	least int
	ends  []float64
}

// clear sets f to what is possible without another request, less what is so far behind.
func (f *frontier) clear(last *frontier, behind int) {
	cut := max(0, len(last.ends)-behind)
	f.least, f.ends = last.least+cut, append(f.ends[:0], last.ends[cut:]...)
}

// set notes that so many requests can be done at a time.
func (f *frontier) set(done int, at float64) {
	i := done - f.least
	if i < 0 {
		return
	}
	for len(f.ends) <= i {
		f.ends = append(f.ends, math.Inf(1))
	}
	f.ends[i] = min(f.ends[i], at)
}

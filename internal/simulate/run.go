package simulate

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/tutti-server/tutti/scheduler/sim"
)

// Settings are those of Run.
type Settings struct {
	Graph *Graph
	// Limit is how long a request may take; 0 for that of the graph, or DefaultLimit.
	Limit   time.Duration
	Traffic *Traffic
	// Rates are the mean rates of arrivals to simulate, per second.
	Rates []float64
	// Noise is the coefficient of variation of the times of batches.
	Noise float64
	// Length is how long requests arrive, 0 for a length in which many arrive. Recorded traffic has its own.
	Length   time.Duration
	Seed     uint64
	Policies []sim.Policy
}

// defaultLimit is the limit of a graph without one, in times that a request takes through full batches.
const defaultLimit = 2.5

// DefaultLimit returns a limit that leaves room to wait for one batch at each step.
func (g *Graph) DefaultLimit() time.Duration {
	if g.Limit > 0 {
		return g.Limit
	}
	full := sim.Graph{Nodes: append([]sim.Node(nil), g.Nodes...)}
	for i := range full.Nodes {
		n := &full.Nodes[i]
		n.Fixed += time.Duration(n.MaxBatch-1) * n.PerRow
	}
	return time.Duration(defaultLimit * float64(full.Shortest())).Round(time.Millisecond / 10)
}

// The default length has so many arrivals at the highest rate, within bounds in time.
const (
	defaultArrivals = 20_000
	leastLength     = 2 * time.Second
	mostLength      = time.Minute
	leastLimits     = 20
)

// setDefaults sets what is 0.
func (s *Settings) setDefaults() {
	if s.Limit == 0 {
		s.Limit = s.Graph.DefaultLimit()
	}
	if s.Traffic.Recorded() {
		s.Length = s.Traffic.Length()
	} else if s.Length == 0 {
		most := 0.0
		for _, rate := range s.Rates {
			most = max(most, rate)
		}
		length := time.Duration(min(defaultArrivals/most, mostLength.Seconds()) * float64(time.Second))
		s.Length = max(length, leastLength, leastLimits*s.Limit).Round(time.Second)
	}
	if len(s.Policies) == 0 {
		for _, p := range sim.Policies {
			s.Policies = append(s.Policies, p.Policy)
		}
	}
}

// Run simulates each policy at each rate. Equal settings give equal reports. It fails only when ctx is done.
func Run(ctx context.Context, s Settings) (*Report, error) {
	s.setDefaults()
	r := &Report{Settings: s, Rows: make([]Row, len(s.Rates))}
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	var all sync.WaitGroup
	for i, rate := range s.Rates {
		arrivals := s.Traffic.arrivals(rate, s.Length, s.Seed)
		r.Rows[i] = Row{Rate: rate, Load: rate / s.Graph.Capacity(), Outcomes: make([]sim.Outcome, len(s.Policies))}
		for k, p := range s.Policies {
			if ctx.Err() != nil {
				continue
			}
			free <- struct{}{}
			all.Go(func() {
				defer func() { <-free }()
				r.Rows[i].Outcomes[k] = sim.Run(&sim.Scenario{Graph: s.Graph.Graph, Arrivals: arrivals, Limit: s.Limit, Noise: s.Noise, Seed: s.Seed, Policy: p})
			})
		}
	}
	all.Wait()
	return r, ctx.Err()
}

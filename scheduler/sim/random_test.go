package sim_test

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/tutti-server/tutti/scheduler/sim"
)

// randomGraph returns a graph of up to six nodes, among them diamonds, branches, several instances and shared devices.
func randomGraph(r *rand.Rand) sim.Graph {
	var g sim.Graph
	for i := range 1 + r.IntN(6) {
		n := sim.Node{
			Name: string(rune('a' + i)), MaxBatch: 1 + r.IntN(16), Instances: r.IntN(3), Device: max(0, r.IntN(4)-1),
			Fixed: time.Duration(r.IntN(5)) * time.Millisecond, PerRow: time.Duration(100+r.IntN(2000)) * time.Microsecond,
		}
		if r.IntN(3) == 0 {
			n.Share = 0.2 + 0.7*r.Float64()
		}
		for a := range i {
			if r.IntN(i) == 0 || a == i-1 && r.IntN(2) == 0 {
				n.After = append(n.After, a)
			}
		}
		g.Nodes = append(g.Nodes, n)
	}
	return g
}

// randomScenario returns a scenario of about two seconds for a random graph.
func randomScenario(seed uint64) sim.Scenario {
	r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // equal seeds give equal scenarios
	s := sim.Scenario{Graph: randomGraph(r), Seed: seed}
	s.Limit = time.Duration(float64(s.Graph.Shortest()) * (0.8 + 6*r.Float64()))
	s.Arrivals = sim.Gamma(min(s.Graph.Capacity(), 600)*(0.5+1.5*r.Float64()), float64(1+r.IntN(4)), 2*time.Second, seed)
	return s
}

// TestEveryRequest checks random graphs with every policy: each request ends once, no policy does more than the bound, and equal
// scenarios have equal outcomes.
func TestEveryRequest(t *testing.T) {
	t.Parallel()
	executed := 0
	for seed := range uint64(60) {
		s := randomScenario(seed)
		if err := s.Graph.Check(); err != nil {
			t.Fatalf("graph %d: %v", seed, err)
		}
		for _, p := range sim.Policies {
			s.Policy = p.Policy
			for _, s.Noise = range []float64{0, 0.2, 0.5} {
				o := sim.Run(&s)
				executed += o.InTime
				if o.Offered != len(s.Arrivals) || o.InTime+o.Late+o.Refused+o.Dropped != o.Offered {
					t.Errorf("graph %d, %s, noise %v: %d in time, %d late, %d refused and %d dropped, of %d", seed, p.Name, s.Noise, o.InTime, o.Late, o.Refused, o.Dropped, o.Offered)
				}
				if s.Noise == 0 && o.Goodput() > o.Bound+1e-9 {
					t.Errorf("graph %d, %s: %.4f in time, more than the bound %.4f: %+v", seed, p.Name, o.Goodput(), o.Bound, s.Graph)
				}
				if o.Wasted < 0 || o.Wasted > o.Busy+time.Duration(o.Offered*len(s.Graph.Nodes)) { // each part is rounded to ns
					t.Errorf("graph %d, %s: %v of %v for requests that were not in time", seed, p.Name, o.Wasted, o.Busy)
				}
				if seed%10 == 0 && !reflect.DeepEqual(o, sim.Run(&s)) {
					t.Errorf("graph %d, %s, noise %v: two runs differ", seed, p.Name, s.Noise)
				}
			}
		}
	}
	if executed == 0 {
		t.Error("no request was in time")
	}
}

// TestAlone checks that a request that has the graph for itself is in time with every policy, if its limit allows that at all.
func TestAlone(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		s := randomScenario(seed)
		s.Arrivals = sim.Arrivals{0}
		s.Graph.Nodes[0].Share = 0
		for i := range s.Graph.Nodes {
			s.Graph.Nodes[i].Device, s.Graph.Nodes[i].Share = 0, 0
		}
		for _, p := range []sim.Policy{sim.Triton, sim.Today, sim.Deadline} {
			s.Policy = p
			for _, limit := range []struct {
				limit time.Duration
				want  int
			}{{s.Graph.Shortest(), 1}, {s.Graph.Shortest() - time.Microsecond, 0}} {
				s.Limit = limit.limit
				if o := sim.Run(&s); o.InTime != limit.want || o.Bound != float64(limit.want) {
					t.Errorf("graph %d, policy %d: %d in time within %v, of %v that it takes; bound %v", seed, p, o.InTime, s.Limit, s.Graph.Shortest(), o.Bound)
				}
			}
		}
	}
}

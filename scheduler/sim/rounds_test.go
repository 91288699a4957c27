package sim_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tutti-server/tutti/scheduler/sim"
)

// search finds by exhaustion how many requests of a chain on one device can be in time: every step, every set of requests, and every wait
// for an arrival is tried.
type search struct {
	s    *sim.Scenario
	seen map[string]int // by state: what can still be in time
}

// best returns how many requests can be in time from a moment on. done is the number of executed steps, by request; -1 for one that is
// given up.
func (x *search) best(now time.Duration, done []int) (most int) {
	key := fmt.Sprint(now, done)
	if n, ok := x.seen[key]; ok {
		return n
	}
	for next, at := range x.s.Arrivals { // wait for an arrival
		if at > now && done[next] == 0 {
			most = x.best(at, done)
			break
		}
	}
	for i := range x.s.Graph.Nodes {
		node := &x.s.Graph.Nodes[i]
		for set := 1; set < 1<<len(done); set++ {
			most = max(most, x.batch(now, done, i, node, set))
		}
	}
	x.seen[key] = most
	return most
}

// batch returns how many requests can be in time if a step executes a set of them next.
func (x *search) batch(now time.Duration, done []int, step int, node *sim.Node, set int) int {
	after, rows := slices.Clone(done), 0
	for r := range done {
		if set>>r&1 == 1 {
			if done[r] != step || x.s.Arrivals[r] > now {
				return 0
			}
			after[r]++
			rows++
		}
	}
	end := now + node.Fixed + time.Duration(rows)*node.PerRow
	in := 0
	for r := range done {
		switch late := end > x.s.Arrivals[r]+x.s.Limit; {
		case rows > node.MaxBatch, late && set>>r&1 == 1:
			return 0
		case late:
			after[r] = -1
		case after[r] == len(x.s.Graph.Nodes):
			after[r] = -1
			in++
		}
	}
	return in + x.best(end, after)
}

// TestBoundBySearch compares with all schedules of small cases: none has more requests in time than the bound, and Rounds, which is a
// schedule, has no more than the best one. In most cases it is the best one.
func TestBoundBySearch(t *testing.T) {
	t.Parallel()
	equal, tight, cases := 0, 0, 200
	for seed := range cases {
		r := rand.New(rand.NewPCG(uint64(seed), 3)) //nolint:gosec // equal in each run
		s := sim.Scenario{Limit: time.Duration(4+r.IntN(12)) * time.Millisecond}
		for i := range 1 + r.IntN(2) {
			n := sim.Node{Name: string(rune('a' + i)), Fixed: time.Duration(r.IntN(3)) * time.Millisecond, PerRow: time.Millisecond / 2 * time.Duration(1+r.IntN(2)), MaxBatch: 1 + r.IntN(3), Device: 1}
			if i > 0 {
				n.After = []int{i - 1}
			}
			s.Graph.Nodes = append(s.Graph.Nodes, n)
		}
		at := time.Duration(0)
		for range 2 + r.IntN(3) {
			at += time.Duration(r.IntN(4)) * time.Millisecond
			s.Arrivals = append(s.Arrivals, at)
		}
		x := search{&s, map[string]int{}}
		best := float64(x.best(0, make([]int, len(s.Arrivals)))) / float64(len(s.Arrivals))
		bound := sim.Run(&s).Bound
		rounds, ok := sim.Rounds(&s)
		if !ok || rounds > best+1e-9 || best > bound+1e-9 {
			t.Errorf("case %d: %.3f in rounds, %.3f at best, bound %.3f: %+v", seed, rounds, best, bound, s)
		}
		if rounds > best-1e-9 {
			equal++
		}
		if best > bound-1e-9 {
			tight++
		}
	}
	t.Logf("of %d cases the best schedule is one in rounds in %d, and the bound in %d", cases, equal, tight)
	if equal < 190 || tight < 180 {
		t.Errorf("of %d cases the best schedule is one in rounds in %d, and the bound in %d, expected at least 190 and 180", cases, equal, tight)
	}
}

// TestRounds checks a schedule by hand: batches of two take 2 ms and 1 ms a row, and of six requests in two bursts within 8 ms all but one are in time.
func TestRounds(t *testing.T) {
	t.Parallel()
	ms := time.Millisecond
	s := sim.Scenario{
		Graph:    sim.Graph{Nodes: []sim.Node{{Name: "a", Fixed: 2 * ms, PerRow: ms, MaxBatch: 2}}},
		Arrivals: sim.Arrivals{0, 0, 0, 0, 0, 20 * ms}, Limit: 8 * ms,
	}
	if got, ok := sim.Rounds(&s); !ok || got != 5.0/6 {
		t.Errorf("%v in time, %v, expected 5 of 6", got, ok)
	}
	s.Graph.Nodes[0].Instances = 2
	if _, ok := sim.Rounds(&s); ok {
		t.Error("rounds of two instances")
	}
	if got, ok := sim.Rounds(&sim.Scenario{Graph: chain(1), Limit: time.Second}); !ok || got != 0 {
		t.Errorf("no request: %v, %v", got, ok)
	}
}

// TestRoundsOfPolicies checks that no policy is far above the best schedule in rounds where requests come at random, and that the server's is not
// far below.
func TestRoundsOfPolicies(t *testing.T) {
	t.Parallel()
	for _, load := range []float64{0.8, 1, 1.2, 1.5} {
		g := chain(1)
		s := sim.Scenario{Graph: g, Limit: 120 * time.Millisecond, Arrivals: sim.Poisson(load*g.Capacity(), 20*time.Second, 1)}
		rounds, _ := sim.Rounds(&s)
		for _, p := range sim.Policies {
			s.Policy = p.Policy
			o := sim.Run(&s)
			if o.Goodput() > rounds+0.01 || rounds > o.Bound+1e-9 {
				t.Errorf("load %.1f, %s: %.4f in time, %.4f in rounds, bound %.4f", load, p.Name, o.Goodput(), rounds, o.Bound)
			}
			if p.Policy == sim.Deadline && o.Goodput() < rounds-0.03 {
				t.Errorf("load %.1f: %.4f in time, %.4f in rounds", load, o.Goodput(), rounds)
			}
			if p.Policy == sim.Deadline {
				t.Logf("load %.1f: %.4f in time, %.4f in rounds, bound %.4f", load, o.Goodput(), rounds, o.Bound)
			}
		}
	}
}

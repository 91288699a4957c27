package main

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/tutti-server/tutti/scheduler/sim"
)

// goodput compares the policies for deadlines: what part of the requests that could be in time is in time. It fails when the server's
// policy misses a goal.
func (b *bench) goodput() error {
	g := &goodputBench{bench: b}
	g.simulated()
	if g.missed {
		return errors.Join(b.table.Flush(), errGoodput)
	}
	return nil
}

// goodputLive is the part of goodput with servers whose models have devices of their own.
func (b *bench) goodputLive() error {
	g := &goodputBench{bench: b}
	return g.judged(g.liveOn(false))
}

// goodputText is the part of goodput with the text example.
func (b *bench) goodputText() error {
	g := &goodputBench{bench: b}
	return g.judged(g.liveText())
}

// goodputShared is the part of goodput with a server whose models share a device.
func (b *bench) goodputShared() error {
	g := &goodputBench{bench: b}
	return g.judged(g.liveOn(true))
}

// judged adds to the error of a run whether a goal is missed.
func (g *goodputBench) judged(err error) error {
	if g.missed {
		err = errors.Join(err, errGoodput)
	}
	return err
}

// errGoodput reports that a goal is missed.
var errGoodput = errors.New("the server's policy misses a goal of goodput")

type goodputBench struct {
	*bench
	missed bool
}

// goodputCase is a line of the table.
type goodputCase struct {
	arrivals string
	of       func(rate float64, length time.Duration, seed uint64) sim.Arrivals
	shared   bool
	limit    time.Duration
	load     float64
	noise    float64

	part, waste []float64 // by policy: goodput over the bound, and the part of the devices' time for requests that were not in time
	rounds      float64   // goodput over the bound of the best schedule in rounds, which knows all arrivals; 0 where it is not defined
}

const (
	goodputLength = time.Minute
	goodputSeeds  = 2
	mostWaste     = 0.02
)

// simulated is the half in virtual time: it does not depend on the machine.
func (g *goodputBench) simulated() {
	cases := goodputCases()
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	var all sync.WaitGroup
	for i := range cases {
		free <- struct{}{}
		all.Go(func() {
			cases[i].run()
			<-free
		})
	}
	all.Wait()
	fmt.Fprintln(g.table, "goodput over the bound; in parentheses the devices' time for requests that were not in time; rounds: the best that is known to be possible on a shared device")
	fmt.Fprint(g.table, "devices\tlimit\tarrivals\tnoise\tload")
	for _, p := range sim.Policies {
		fmt.Fprintf(g.table, "\t%s", p.Name)
	}
	fmt.Fprintln(g.table, "\trounds\tgoal")
	for i := range cases {
		g.line(&cases[i])
	}
}

// goodputKinds are the kinds of arrivals.
func goodputKinds() []goodputCase {
	gamma := func(cv float64) func(rate float64, length time.Duration, seed uint64) sim.Arrivals {
		return func(rate float64, length time.Duration, seed uint64) sim.Arrivals {
			return sim.Gamma(rate, cv, length, seed)
		}
	}
	return []goodputCase{
		{arrivals: "poisson", of: sim.Poisson},
		{arrivals: "twitter", of: sim.Twitter},
		{arrivals: "gamma 2", of: gamma(2)},
		{arrivals: "gamma 4", of: gamma(4)},
		{arrivals: "gamma 8", of: gamma(8)},
	}
}

func goodputCases() (list []goodputCase) {
	const ms = time.Millisecond
	for _, on := range []goodputCase{{limit: 120 * ms}, {shared: true, limit: 150 * ms}, {shared: true, limit: 120 * ms}} {
		for _, kind := range goodputKinds() {
			for _, noise := range []float64{0, 0.2, 0.5} {
				for _, load := range []float64{0.8, 1, 1.2, 1.5} {
					c := kind
					c.shared, c.limit, c.noise, c.load = on.shared, on.limit, noise, load
					list = append(list, c)
				}
			}
		}
	}
	return list
}

// graph is a chain of three models. With full batches they take 10, 29 and 10 ms.
func (c *goodputCase) graph() sim.Graph {
	const ms = time.Millisecond
	nodes := []sim.Node{
		{Name: "a", Fixed: 2 * ms, PerRow: ms / 2, MaxBatch: 16},
		{Name: "b", After: []int{0}, Fixed: 5 * ms, PerRow: 3 * ms / 2, MaxBatch: 16},
		{Name: "c", After: []int{1}, Fixed: 2 * ms, PerRow: ms / 2, MaxBatch: 16},
	}
	for i := range nodes {
		if c.shared {
			nodes[i].Device = 1
		}
	}
	return sim.Graph{Nodes: nodes}
}

func (c *goodputCase) run() {
	graph := c.graph()
	c.part, c.waste = make([]float64, len(sim.Policies)), make([]float64, len(sim.Policies))
	for seed := range uint64(goodputSeeds) {
		s := sim.Scenario{Graph: graph, Arrivals: c.of(c.load*graph.Capacity(), goodputLength, seed+1), Limit: c.limit, Noise: c.noise, Seed: seed + 1}
		rounds, _ := sim.Rounds(&s)
		for i, p := range sim.Policies {
			s.Policy = p.Policy
			o := sim.Run(&s)
			if i == 0 {
				c.rounds += rounds / o.Bound / goodputSeeds
			}
			c.part[i] += o.Goodput() / o.Bound / goodputSeeds
			c.waste[i] += o.Waste() / goodputSeeds
		}
	}
}

// goal returns the least goodput over the bound that the server's policy must have; 0 for none. Noise makes every prediction wrong, and
// bursts make the bound one that no policy reaches.
func (c *goodputCase) goal() float64 {
	switch {
	case c.load < 1 || c.arrivals != "poisson" && c.arrivals != "twitter" || c.noise > 0.2:
		return 0
	case c.noise > 0:
		return 0.95
	}
	return 0.97
}

const (
	missed = "MISSED"
	// within is how far the server's policy may be below another one: what it pays for learning the times that nexus knows.
	within = 0.01
)

// verdict names the goals that the server's policy has, and those that it misses. With exact times it is never below nexus, which knows
// them; at 0.8 never below first in, first out.
func (c *goodputCase) verdict() (text string) {
	own := c.part[sim.Deadline]
	if goal := c.goal(); goal > 0 {
		text = fmt.Sprintf("%.2f", goal)
		if own < goal || c.waste[sim.Deadline] > mostWaste {
			text += " " + missed
		}
	}
	if c.noise == 0 && own < c.part[sim.Nexus]-within {
		text += " nexus " + missed
	}
	if c.load < 1 && own < max(c.part[sim.Triton], c.part[sim.Today])-within {
		text += " fifo " + missed
	}
	return text
}

// line prints a case.
func (g *goodputBench) line(c *goodputCase) {
	devices := "own"
	if c.shared {
		devices = "shared"
	}
	fmt.Fprintf(g.table, "%s\t%v\t%s\t%.0f %%\t%.1f", devices, c.limit, c.arrivals, 100*c.noise, c.load)
	for i := range sim.Policies {
		fmt.Fprintf(g.table, "\t%.3f (%.1f %%)", c.part[i], 100*c.waste[i])
	}
	if c.rounds > 0 {
		fmt.Fprintf(g.table, "\t%.3f", c.rounds)
	} else {
		fmt.Fprint(g.table, "\t-")
	}
	verdict := c.verdict()
	g.missed = g.missed || strings.Contains(verdict, missed)
	fmt.Fprintf(g.table, "\t%s\n", verdict)
}

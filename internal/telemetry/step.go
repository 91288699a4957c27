package telemetry

import (
	"slices"
	"sync/atomic"

	"github.com/tutti-server/tutti/core/tensor"
)

// Step holds the counters of one step of an ensemble. Its methods are safe for
// concurrent use and allocate nothing in the steady state.
type Step struct {
	// straight counts the tasks whose duration was the model's execution only, others all the rest.
	straight timed
	others   byPhase
	name     string // node name in the plan
	// brief steps count their total only. They belong to large graphs, whose steps cost less than counting all
	// phases.
	brief bool
}

// briefGraph is the number of steps from which a graph's steps are brief.
const briefGraph = 64

// Done counts one successful task of the step: when it was enqueued, and its times.
//
// hot: atomic adds.
func (s *Step) Done(enqueued int64, t *Times) {
	by := &s.others
	switch {
	case s.brief:
		by.part(inTotal, t.End-enqueued)
	case straight(enqueued, t):
		if ns := t.InferEnd - t.Start; ns > 0 {
			s.straight.observe(secondsScale, seconds(ns))
			s.straight.ns.Add(uint64(ns))
		}
	default:
		by.part(inQueue, t.Start-enqueued)
		by.part(inInput, t.InputEnd-t.Start)
		by.part(inInfer, t.InferEnd-t.InputEnd)
		by.part(inOutput, t.End-t.InferEnd)
		by.part(inTotal, t.End-enqueued)
	}
}

// part counts one phase that has its sum here.
func (b *byPhase) part(p phase, ns int64) {
	if ns > 0 {
		b[p].observe(secondsScale, seconds(ns))
		b[p].ns.Add(uint64(ns))
	}
}

// phase returns the distribution of a phase, nil when the step has none.
func (s *Step) phase(a *arena, p phase) *tally {
	by, whole := &s.others, s.straight.used() && (p == inInfer || p == inTotal)
	if !whole && !by[p].used() {
		return nil
	}
	t := a.newTally(secondsScale)
	t.add(&by[inTotal].dist)
	t.add(&s.straight.dist)
	n, ns := t.all, by[p].ns.Load()
	if p != inTotal {
		t = a.newTally(secondsScale)
		t.add(&by[p].dist)
		if whole {
			t.add(&s.straight.dist)
		}
	}
	if whole {
		ns += s.straight.ns.Load()
	}
	t.fill(n)
	t.sum = float64(ns) / nsPerSecond
	return t
}

// Edge counts the bytes of one tensor of an ensemble by the kind of place in which its producer, or the request,
// put it.
type Edge struct {
	Tensor string
	bytes  [tensor.Device + 1]atomic.Uint64
}

// Carried counts one tensor.
//
// hot: one atomic add.
func (e *Edge) Carried(t *tensor.Tensor) {
	if t.Present() {
		e.bytes[t.Buf.Place().Kind].Add(uint64(t.Len))
	}
}

// Bytes returns the bytes counted at a kind of place.
func (e *Edge) Bytes(at tensor.Kind) uint64 { return e.bytes[at].Load() }

// PlaceName is the label's value of a kind of place.
func PlaceName(at tensor.Kind) string { return placeNames[at] }

// graph holds an ensemble's counters by step and by tensor.
type graph struct {
	steps []*Step
	edges []*Edge
}

// Steps returns the counters of the named steps and creates missing ones. It is called during loading: steps exist
// as long as the model.
func (m *Model) Steps(names []string) []*Step {
	made := make([]Step, len(names)) // neighbours
	for {
		old := m.graph.Load()
		next, list := &graph{}, make([]*Step, len(names))
		if old != nil {
			next.steps, next.edges = slices.Clone(old.steps), old.edges
		}
		known := make(map[string]*Step, len(names))
		for _, s := range next.steps {
			known[s.name] = s
		}
		for i, name := range names {
			if list[i] = known[name]; list[i] == nil {
				made[i].name, made[i].brief = name, len(names) > briefGraph
				list[i] = &made[i]
				next.steps = append(next.steps, list[i])
			}
		}
		if m.graph.CompareAndSwap(old, next) {
			return list
		}
	}
}

// Edges returns the counters of the named tensors and creates missing ones, as Steps does.
func (m *Model) Edges(names []string) []*Edge {
	made := make([]Edge, len(names))
	for {
		old := m.graph.Load()
		next, list := &graph{}, make([]*Edge, len(names))
		if old != nil {
			next.steps, next.edges = old.steps, slices.Clone(old.edges)
		}
		known := make(map[string]*Edge, len(names))
		for _, e := range next.edges {
			known[e.Tensor] = e
		}
		for i, name := range names {
			if list[i] = known[name]; list[i] == nil {
				made[i].Tensor = name
				list[i] = &made[i]
				next.edges = append(next.edges, list[i])
			}
		}
		if m.graph.CompareAndSwap(old, next) {
			return list
		}
	}
}

// Carried returns the counters of all tensors of an ensemble.
func (m *Model) Carried() []*Edge {
	if g := m.graph.Load(); g != nil {
		return g.edges
	}
	return nil
}

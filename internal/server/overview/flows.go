package overview

import (
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// flowSamples is how many samples of an edge are retained: its rate is that of 5 seconds.
const flowSamples = 6

// kinds is how many kinds of places there are.
const kinds = int(tensor.Device) + 1

// flows are the bytes of each edge of an ensemble at each kind of place, in the last
// samples. An ensemble may gain edges, which are appended; it never loses any.
type flows struct {
	edges []*telemetry.Edge
	bytes [flowSamples][]uint64
}

// sample stores the current counters as those of a second.
func (f *flows) sample(second int, edges []*telemetry.Edge) {
	f.edges = edges
	at := &f.bytes[second%flowSamples]
	*at = (*at)[:0]
	for _, e := range edges {
		for kind := range kinds {
			*at = append(*at, e.Bytes(tensor.Kind(kind)))
		}
	}
}

// between returns the bytes of an edge between two samples. An edge that the older sample
// lacks counts from 0.
func (f *flows) between(oldest, newest, edge, kind int) uint64 {
	i := edge*kinds + kind
	from, to := f.bytes[oldest%flowSamples], f.bytes[newest%flowSamples]
	switch {
	case i >= len(to):
		return 0
	case i >= len(from):
		return to[i]
	}
	return to[i] - from[i]
}

// addFlows sets the rates of the edges of a graph.
func (w *Window) addFlows(g *inspect.GraphView) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.versions[versionKey{g.Model, g.Version}]
	if s == nil {
		return
	}
	byTensor := make(map[string]int, len(s.flows.edges))
	for i, e := range s.flows.edges {
		byTensor[e.Tensor] = i
	}
	oldest := max(s.first-1, w.second-flowSamples+1)
	for i := range g.Edges {
		edge, ok := byTensor[g.Edges[i].Tensor]
		for j := range g.Edges[i].Carried {
			c := &g.Edges[i].Carried[j]
			for kind := range kinds {
				if ok && telemetry.PlaceName(tensor.Kind(kind)) == c.Place {
					c.Rate = float64(s.flows.between(oldest, w.second, edge, kind)) / float64(w.second-oldest)
				}
			}
		}
	}
}

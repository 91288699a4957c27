package tutti

import (
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// flowLooks is over how many looks, less one, the rates of edges are taken.
const flowLooks = 6

// kinds is how many kinds of places there are.
const kinds = int(tensor.Device) + 1

// flows are the bytes that passed each edge of an ensemble at each kind of place, as
// they were at the last looks. Edges are never taken away, and their order stays.
type flows struct {
	edges []*telemetry.Edge
	bytes [flowLooks][]uint64
}

// look remembers the counters at the second-th look.
func (f *flows) look(second int, edges []*telemetry.Edge) {
	f.edges = edges
	at := &f.bytes[second%flowLooks]
	*at = (*at)[:0]
	for _, e := range edges {
		for kind := range kinds {
			*at = append(*at, e.Bytes(tensor.Kind(kind)))
		}
	}
}

// between returns how many bytes passed from one look to another. What was not counted
// yet at the first of them passed since.
func (f *flows) between(oldest, newest, edge, kind int) uint64 {
	i := edge*kinds + kind
	was, now := f.bytes[oldest%flowLooks], f.bytes[newest%flowLooks]
	switch {
	case i >= len(now):
		return 0
	case i >= len(was):
		return now[i]
	}
	return now[i] - was[i]
}

// flow says at what rate bytes pass the edges of a graph.
func (v *overview) flow(g *infer.GraphView) {
	v.mu.Lock()
	defer v.mu.Unlock()
	h := v.past[served{g.Model, g.Version}]
	if h == nil {
		return
	}
	by := make(map[string]int, len(h.flows.edges))
	for i, e := range h.flows.edges {
		by[e.Tensor] = i
	}
	oldest := max(h.first-1, v.second-flowLooks+1)
	for i := range g.Edges {
		edge, ok := by[g.Edges[i].Tensor]
		for j := range g.Edges[i].Carried {
			c := &g.Edges[i].Carried[j]
			for kind := range kinds {
				if ok && telemetry.PlaceName(tensor.Kind(kind)) == c.Place {
					c.Rate = float64(h.flows.between(oldest, v.second, edge, kind)) / float64(v.second-oldest)
				}
			}
		}
	}
}

package plan

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/dominikbraun/graph"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// cycles refuses steps that depend on each other, and names them. For example, "a -> b -> a".
func (c *compiler) cycles() error {
	c.writer = make([]int32, len(c.names))
	for i := range c.writer {
		c.writer[i] = -1
	}
	for i, s := range c.leaves {
		for _, slot := range s.out {
			if slot != None {
				c.writer[slot] = int32(i)
			}
		}
	}
	g, err := c.graph()
	if err != nil {
		return status.Errorf(status.Internal, "the graph of ensemble '%s' cannot be built: %w", c.root.GetName(), err)
	}
	components, err := graph.StronglyConnectedComponents(g)
	if err != nil {
		return status.Errorf(status.Internal, "the graph of ensemble '%s' cannot be searched: %w", c.root.GetName(), err)
	}
	var ring []int
	for _, members := range components {
		first := slices.Min(members)
		if _, err := g.Edge(first, first); len(members) == 1 && err != nil {
			continue
		}
		// The component that holds the earliest step is named, whatever the order of the search.
		if ring == nil || first < slices.Min(ring) {
			ring = members
		}
	}
	if ring == nil {
		return nil
	}
	edges, err := g.AdjacencyMap()
	if err != nil {
		return status.Errorf(status.Internal, "the graph of ensemble '%s' cannot be read: %w", c.root.GetName(), err)
	}
	return c.cycleError(shortest(edges, ring))
}

// cycle refuses steps of l that depend on each other, by the names of tensors alone, when the
// models are unknown. With models the ports are more exact: a step that reads one output of a
// nested ensemble need not depend on all of it.
func (l *level) cycle(steps []*modelconfig.ModelEnsembling_Step) error {
	own := *l
	own.slots = map[string]Slot{}
	c := &compiler{root: l.cfg}
	slotOf := func(tensor string) Slot {
		slot, known := own.slots[tensor]
		if !known {
			slot = Slot(len(c.names))
			own.slots[tensor] = slot
			c.names, c.alias = append(c.names, tensor), append(c.alias, slot)
		}
		return slot
	}
	for i, name := range stepNames(l, steps) {
		s := &step{level: &own, name: name}
		for _, port := range slices.Sorted(maps.Keys(steps[i].GetInputMap())) {
			s.in = append(s.in, slotOf(steps[i].GetInputMap()[port]))
		}
		for _, port := range slices.Sorted(maps.Keys(steps[i].GetOutputMap())) {
			s.out = append(s.out, slotOf(steps[i].GetOutputMap()[port]))
		}
		c.leaves = append(c.leaves, s)
	}
	return c.cycles()
}

// graph returns the steps, numbered from 1, with an edge from each producer to its readers. The
// library's search for components takes the zero key for the end of its stack, so 0 must not be
// a key.
func (c *compiler) graph() (graph.Graph[int, int], error) {
	g := graph.New(graph.IntHash, graph.Directed())
	for i := range c.leaves {
		if err := g.AddVertex(i + 1); err != nil {
			return nil, err
		}
	}
	for i, s := range c.leaves {
		for _, slot := range s.in {
			if slot == None || c.writer[slot] < 0 {
				continue
			}
			err := g.AddEdge(int(c.writer[slot])+1, i+1)
			if err != nil && !errors.Is(err, graph.ErrEdgeAlreadyExists) {
				return nil, err
			}
		}
	}
	return g, nil
}

// shortest returns the leaves of a shortest cycle through the earliest step of ring.
func shortest(edges map[int]map[int]graph.Edge[int], ring []int) []int {
	start := slices.Min(ring)
	member := make(map[int]bool, len(ring))
	for _, at := range ring {
		member[at] = true
	}
	from := map[int]int{}
	queue := []int{start}
	for ; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		for _, next := range slices.Sorted(maps.Keys(edges[at])) {
			if _, seen := from[next]; !seen && member[next] {
				from[next] = at
				queue = append(queue, next)
			}
		}
	}
	var path []int
	for at := from[start]; at != start; at = from[at] {
		path = append(path, at-1)
	}
	path = append(path, start-1)
	slices.Reverse(path)
	return path
}

// cycleError returns Triton's error, which reports only that data never arrives, with the
// steps of the cycle added.
func (c *compiler) cycleError(cycle []int) error {
	names := make([]string, 0, len(cycle)+1)
	for _, i := range cycle {
		names = append(names, c.leaves[i].name)
	}
	why := strings.Join(append(names, names[0]), " -> ")
	late := c.after(cycle)
	l := c.common(cycle)
	for i := range l.sig.Outputs {
		name := l.sig.Outputs[i].Name
		slot, ok := l.slots[name]
		if slot = c.slot(slot); !ok || slot == None || !late[slot] {
			continue
		}
		for _, in := range c.leaves[c.writer[slot]].in {
			if in != None && late[in] {
				return l.fail(config.Errorf(config.Circle, "ensemble_scheduling",
					"output '%s' for ensemble '%s' is not written: at least one of its depending tensors, '%s', is not connected (cycle: %s)",
					name, l.name(), c.names[in], why))
			}
		}
	}
	unused := ""
	for _, slot := range c.leaves[cycle[0]].out {
		if slot != None && late[slot] {
			unused = c.names[slot]
			break
		}
	}
	return l.fail(config.Errorf(config.Circle, "ensemble_scheduling", "ensemble tensor '%s' is unused in ensemble '%s' (cycle: %s)", unused, l.name(), why))
}

// after returns, per slot, whether its tensor waits for the cycle.
func (c *compiler) after(cycle []int) []bool {
	readers := make([][]int, len(c.names))
	for i, s := range c.leaves {
		for _, slot := range s.in {
			if slot != None {
				readers[slot] = append(readers[slot], i)
			}
		}
	}
	late := make([]bool, len(c.names))
	seen := make([]bool, len(c.leaves))
	for queue := slices.Clone(cycle); len(queue) > 0; queue = queue[1:] {
		if seen[queue[0]] {
			continue
		}
		seen[queue[0]] = true
		for _, slot := range c.leaves[queue[0]].out {
			if slot != None {
				late[slot] = true
				queue = append(queue, readers[slot]...)
			}
		}
	}
	return late
}

// common returns the innermost ensemble that holds the whole cycle.
func (c *compiler) common(cycle []int) *level {
	l := c.leaves[cycle[0]].level
	for _, i := range cycle[1:] {
		for !c.leaves[i].level.inside(l) {
			l = l.parent
		}
	}
	return l
}

// inside reports whether l is outer or in it.
func (l *level) inside(outer *level) bool {
	for ; l != nil; l = l.parent {
		if l == outer {
			return true
		}
	}
	return false
}

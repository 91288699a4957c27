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
	c.writer = unmapped(len(c.names))
	for i, s := range c.leaves {
		for _, slot := range s.out {
			if slot != None {
				c.writer[slot] = int32(i)
			}
		}
		if s.failed != None {
			c.writer[s.failed] = int32(i)
		}
	}
	var edges map[int]map[int]graph.Edge[int]
	var components [][]int
	g, err := c.graph()
	if err == nil {
		edges, err = g.AdjacencyMap()
	}
	if err == nil {
		components, err = graph.StronglyConnectedComponents(g)
	}
	if err != nil {
		return status.Errorf(status.Internal, "the graph of ensemble '%s' cannot be searched: %w", c.root.GetName(), err)
	}
	var ring []int
	for _, members := range components {
		first := slices.Min(members)
		_, itself := edges[first][first]
		// The component that holds the earliest step is named, whatever the order of the search.
		if (len(members) > 1 || itself) && (ring == nil || first < slices.Min(ring)) {
			ring = members
		}
	}
	if ring == nil {
		return nil
	}
	return c.cycleError(shortest(edges, ring))
}

// cycle refuses steps of l that depend on each other, by the names of tensors alone, when the models are unknown. With
// models the ports are more exact: a step that reads one output of a nested ensemble need not depend on all of it.
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
		s := &step{level: &own, name: name, rows: None, failed: None}
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

// graph returns the steps, numbered from 1, with an edge from each producer to its readers. The library's search for
// components takes the zero key for the end of its stack, so 0 must not be a key.
func (c *compiler) graph() (graph.Graph[int, int], error) {
	g := graph.New(graph.IntHash, graph.Directed())
	for i := range c.leaves {
		if err := g.AddVertex(i + 1); err != nil {
			return nil, err
		}
	}
	for i, s := range c.leaves {
		for _, slot := range c.before(s) {
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
	from := map[int]int{}
	queue := []int{start}
	for ; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		for _, next := range slices.Sorted(maps.Keys(edges[at])) {
			if _, seen := from[next]; !seen && slices.Contains(ring, next) {
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

// cycleError returns Triton's error, which reports only that data never arrives, with the steps of the cycle added.
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
		for !slices.Contains(c.leaves[i].level.around(), l) {
			l = l.parent
		}
	}
	return l
}

// prune finds the steps that each output needs, so that a request runs only those, and removes those of none.
func (c *compiler) prune() error {
	for _, slot := range c.outputs {
		need := c.upstream(slot)
		c.shadows(need)
		c.needs = append(c.needs, need)
	}
	all := NewNodeSet(len(c.leaves))
	for _, n := range c.needs {
		all.AddAll(n)
	}
	number := make([]int32, len(c.leaves))
	var kept []*step
	for i, s := range c.leaves {
		number[i] = int32(len(kept))
		if all.Contains(int32(i)) {
			kept = append(kept, s)
		}
	}
	for i, n := range c.needs {
		c.needs[i] = renumber(n, number, len(kept))
	}
	for slot, w := range c.writer {
		if w >= 0 && all.Contains(w) {
			c.writer[slot] = number[w]
		} else {
			c.writer[slot] = -1
		}
	}
	c.leaves = kept
	return nil
}

// upstream returns the leaves that slot depends on.
func (c *compiler) upstream(slot Slot) NodeSet {
	need := NewNodeSet(len(c.leaves))
	for stack := []Slot{slot}; len(stack) > 0; {
		slot := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if slot == None || c.writer[slot] < 0 || need.Contains(c.writer[slot]) {
			continue
		}
		need.Add(c.writer[slot])
		stack = append(stack, c.before(c.leaves[c.writer[slot]])...)
	}
	return need
}

// renumber returns the set b of n members with each member i called number[i].
func renumber(b NodeSet, number []int32, n int) NodeSet {
	r := NewNodeSet(n)
	for i := range int32(len(number)) {
		if b.Contains(i) {
			r.Add(number[i])
		}
	}
	return r
}

// order puts every step behind those it waits for (Kahn's algorithm) and otherwise
// keeps the order of the configuration, those of outer streams first, then assembles the plan.
func (c *compiler) order() error {
	waits := make([]int, len(c.leaves))
	next := make([][]int32, len(c.leaves))
	var ready []int64 // sorted: steps of outer streams, for which inner ones may wait, then as they are configured
	enter := func(leaf int32) {
		position := int64(c.flows[c.leaves[leaf].stream].depth)<<32 | int64(leaf)
		at, _ := slices.BinarySearch(ready, position)
		ready = slices.Insert(ready, at, position)
	}
	for i, s := range c.leaves {
		for _, slot := range c.before(s) {
			if slot != None && c.writer[slot] >= 0 {
				waits[i]++
				next[c.writer[slot]] = append(next[c.writer[slot]], int32(i))
			}
		}
		if waits[i] == 0 {
			enter(int32(i))
		}
	}
	number := make([]int32, len(c.leaves))
	var sorted []*step
	for len(ready) > 0 {
		i := int32(ready[0]) //nolint:gosec // the lower half is the leaf
		ready = ready[1:]
		number[i] = int32(len(sorted))
		sorted = append(sorted, c.leaves[i])
		for _, n := range next[i] {
			if waits[n]--; waits[n] == 0 {
				enter(n)
			}
		}
	}
	if len(sorted) < len(c.leaves) {
		return status.Errorf(status.Internal, "the steps of ensemble '%s' have no order", c.root.GetName())
	}
	c.leaves = sorted
	for i, n := range c.needs {
		c.needs[i] = renumber(n, number, len(sorted))
	}
	c.plan = c.assemble()
	return nil
}

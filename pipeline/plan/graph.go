package plan

import (
	"maps"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// cycles refuses steps that depend on each other, and names them. For example, "a -> b -> a".
func (c *compiler) cycles() error {
	c.flows = []stream{{}} // for sorted: one stream so far
	c.writers()
	if len(c.sorted()) == len(c.leaves) {
		return nil
	}
	next, _ := c.readers()
	for i := range int32(len(c.leaves)) {
		if cycle := shortest(next, i); cycle != nil {
			return c.cycleError(cycle, next)
		}
	}
	return status.Errorf(status.Internal, "the steps of ensemble '%s' have no order", c.root.GetName())
}

// writers notes the leaf that writes each slot.
func (c *compiler) writers() {
	c.writer = unmapped(len(c.names))
	for i, s := range c.leaves {
		for _, slot := range s.out {
			if slot != None {
				c.writer[slot] = int32(i)
			}
		}
	}
}

// readers returns, per leaf, those that read its outputs, in order, and how many inputs it waits for.
func (c *compiler) readers() (next [][]int32, waits []int) {
	next, waits = make([][]int32, len(c.leaves)), make([]int, len(c.leaves))
	for i, s := range c.leaves {
		for _, slot := range s.in {
			if slot != None && c.writer[slot] >= 0 {
				waits[i]++
				next[c.writer[slot]] = append(next[c.writer[slot]], int32(i))
			}
		}
	}
	return next, waits
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

// shortest returns the leaves of a shortest cycle through leaf start, nil without one.
func shortest(next [][]int32, start int32) []int32 {
	from := map[int32]int32{}
	for queue := []int32{start}; len(queue) > 0; queue = queue[1:] {
		for _, leaf := range next[queue[0]] {
			if _, seen := from[leaf]; !seen {
				from[leaf] = queue[0]
				queue = append(queue, leaf)
			}
		}
	}
	at, found := from[start]
	if !found {
		return nil
	}
	path := []int32{start}
	for ; at != start; at = from[at] {
		path = append(path, at)
	}
	slices.Reverse(path[1:])
	return path
}

// cycleError returns Triton's error, which reports only that data never arrives, with the steps of the cycle added.
func (c *compiler) cycleError(cycle []int32, next [][]int32) error {
	names := make([]string, 0, len(cycle)+1)
	for _, i := range cycle {
		names = append(names, c.leaves[i].name)
	}
	why := strings.Join(append(names, names[0]), " -> ")
	late := c.after(cycle, next)
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
func (c *compiler) after(cycle []int32, next [][]int32) []bool {
	late, seen := make([]bool, len(c.names)), make([]bool, len(c.leaves))
	for queue := slices.Clone(cycle); len(queue) > 0; queue = queue[1:] {
		leaf := queue[0]
		if seen[leaf] {
			continue
		}
		seen[leaf] = true
		for _, slot := range c.leaves[leaf].out {
			if slot != None {
				late[slot] = true
			}
		}
		queue = append(queue, next[leaf]...)
	}
	return late
}

// common returns the innermost ensemble that holds the whole cycle.
func (c *compiler) common(cycle []int32) *level {
	l := c.leaves[cycle[0]].level
	for _, i := range cycle[1:] {
		for !slices.Contains(c.leaves[i].level.around(), l) {
			l = l.parent
		}
	}
	return l
}

// A stream is everything that depends on the responses of one decoupled step; stream 0 depends
// on the request alone. A step is in the innermost stream that it reads. Its other inputs must
// be of streams around that one, where every response sees the same tensor.

// stream is one of them.
type stream struct {
	around int32 // the stream that its decoupled step is in
	depth  int32 // how many streams are around it
}

// streams finds the stream of every step and tensor. It refuses to pair the responses of independent decoupled steps.
func (c *compiler) streams() error {
	c.origin = make([]int32, len(c.names))
	seen := make([]bool, len(c.leaves))
	for i := range c.leaves {
		if err := c.trace(int32(i), seen); err != nil {
			return err
		}
	}
	inner := int32(0)
	for i, slot := range c.outputs {
		if slot == None {
			continue
		}
		at, ok := c.innermost(inner, c.origin[slot])
		if !ok {
			root := c.levels[0]
			return root.errorf(config.MixedStreams, "ensemble_scheduling",
				"step of model '%s' receives inputs originated from different decoupled models: output '%s' and those before it, whose responses have no common number",
				root.name(), root.sig.Outputs[i].Name)
		}
		inner = at
	}
	return nil
}

// trace finds the stream of leaf i after those of its producers. There must be no cycles.
func (c *compiler) trace(i int32, seen []bool) error {
	if seen[i] {
		return nil
	}
	seen[i] = true
	s := c.leaves[i]
	for _, slot := range s.in {
		if slot == None {
			continue
		}
		if w := c.writer[slot]; w >= 0 {
			if err := c.trace(w, seen); err != nil {
				return err
			}
		}
		at, ok := c.innermost(s.stream, c.origin[slot])
		if !ok {
			return s.level.errorf(config.MixedStreams, s.field(), "step of model '%s' receives inputs originated from different decoupled models", s.model)
		}
		s.stream = at
	}
	out := s.stream
	if s.sig.Decoupled {
		out = int32(len(c.flows))
		c.flows = append(c.flows, stream{around: s.stream, depth: c.flows[s.stream].depth + 1})
	}
	for _, slot := range s.out {
		if slot != None {
			c.origin[slot] = out
		}
	}
	return nil
}

// innermost returns the inner of two nested streams; false when neither contains the other.
func (c *compiler) innermost(a, b int32) (int32, bool) {
	if c.flows[a].depth < c.flows[b].depth {
		a, b = b, a
	}
	at := a
	for c.flows[at].depth > c.flows[b].depth {
		at = c.flows[at].around
	}
	return a, at == b
}

// prune finds the steps that each output needs, so that a request runs only those, and removes those of none.
func (c *compiler) prune() error {
	all := NewNodeSet(len(c.leaves))
	for _, slot := range c.outputs {
		all.AddAll(c.upstream(slot))
	}
	var kept []*step
	for i, s := range c.leaves {
		if all.Contains(int32(i)) {
			kept = append(kept, s)
		}
	}
	c.renumber(kept)
	return nil
}

// renumber replaces the leaves, and the numbers by which others refer to them.
func (c *compiler) renumber(leaves []*step) {
	c.leaves, c.needs = leaves, make([]NodeSet, len(c.outputs))
	c.writers()
	for i, slot := range c.outputs {
		c.needs[i] = c.upstream(slot)
	}
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
		stack = append(stack, c.leaves[c.writer[slot]].in...)
	}
	return need
}

// order puts every step behind those it waits for and assembles the plan.
func (c *compiler) order() error {
	var sorted []*step
	for _, i := range c.sorted() {
		sorted = append(sorted, c.leaves[i])
	}
	c.renumber(sorted)
	c.plan = c.assemble()
	return nil
}

// sorted returns the leaves, each behind those it waits for (Kahn's algorithm), otherwise in the order of the
// configuration, those of outer streams first. Those that wait for a cycle are left out.
func (c *compiler) sorted() (list []int32) {
	next, waits := c.readers()
	var ready []int64 // sorted: steps of outer streams, for which inner ones may wait, then as they are configured
	enter := func(leaf int32) {
		position := int64(c.flows[c.leaves[leaf].stream].depth)<<32 | int64(leaf)
		at, _ := slices.BinarySearch(ready, position)
		ready = slices.Insert(ready, at, position)
	}
	for i, n := range waits {
		if n == 0 {
			enter(int32(i))
		}
	}
	for len(ready) > 0 {
		leaf := int32(ready[0]) //nolint:gosec // the lower half is the leaf
		ready = ready[1:]
		list = append(list, leaf)
		for _, n := range next[leaf] {
			if waits[n]--; waits[n] == 0 {
				enter(n)
			}
		}
	}
	return list
}

package plan

import (
	"container/heap"

	"tutti/core/status"
)

// order puts every step behind those it waits for (Kahn's algorithm) and otherwise
// keeps the order of the configuration, then assembles the plan.
func (c *compiler) order() error {
	waits := make([]int, len(c.leaves))
	next := make([][]int32, len(c.leaves))
	var ready positions
	for i, s := range c.leaves {
		for _, slot := range s.in {
			if slot != None && c.writer[slot] >= 0 {
				waits[i]++
				next[c.writer[slot]] = append(next[c.writer[slot]], int32(i))
			}
		}
		if waits[i] == 0 {
			ready = append(ready, int32(i)) // ascending, so a heap already
		}
	}
	number := make([]int32, len(c.leaves))
	var sorted []*step
	for len(ready) > 0 {
		i, ok := heap.Pop(&ready).(int32)
		if !ok {
			break
		}
		number[i] = int32(len(sorted))
		sorted = append(sorted, c.leaves[i])
		for _, n := range next[i] {
			if waits[n]--; waits[n] == 0 {
				heap.Push(&ready, n)
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

// positions is a heap of step positions.
type positions []int32

func (p positions) Len() int           { return len(p) }
func (p positions) Less(i, j int) bool { return p[i] < p[j] }
func (p positions) Swap(i, j int)      { p[i], p[j] = p[j], p[i] }

// Push is heap.Interface's.
func (p *positions) Push(x any) { *p = append(*p, x.(int32)) } //nolint:errcheck,forcetypeassert // only order pushes

// Pop is heap.Interface's.
func (p *positions) Pop() any {
	last := (*p)[len(*p)-1]
	*p = (*p)[:len(*p)-1]
	return last
}

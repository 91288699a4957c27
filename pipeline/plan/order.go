package plan

import (
	"container/heap"

	"github.com/tutti-server/tutti/core/status"
)

// order puts every step behind those it waits for (Kahn's algorithm) and otherwise
// keeps the order of the configuration, those of outer streams first, then assembles the plan.
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
			ready = append(ready, c.position(int32(i)))
		}
	}
	heap.Init(&ready)
	number := make([]int32, len(c.leaves))
	var sorted []*step
	for len(ready) > 0 {
		p, ok := heap.Pop(&ready).(int64)
		if !ok {
			break
		}
		i := int32(p) //nolint:gosec // the lower half is the position
		number[i] = int32(len(sorted))
		sorted = append(sorted, c.leaves[i])
		for _, n := range next[i] {
			if waits[n]--; waits[n] == 0 {
				heap.Push(&ready, c.position(n))
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

// position orders the steps: those of outer streams before those of inner ones, which
// may wait for them, then as they are configured.
func (c *compiler) position(leaf int32) int64 {
	return int64(c.flows[c.leaves[leaf].stream].depth)<<32 | int64(leaf)
}

// positions is a heap of step positions.
type positions []int64

func (p positions) Len() int           { return len(p) }
func (p positions) Less(i, j int) bool { return p[i] < p[j] }
func (p positions) Swap(i, j int)      { p[i], p[j] = p[j], p[i] }

// Push is heap.Interface's.
func (p *positions) Push(x any) { *p = append(*p, x.(int64)) } //nolint:errcheck,forcetypeassert // only order pushes

// Pop is heap.Interface's.
func (p *positions) Pop() any {
	last := (*p)[len(*p)-1]
	*p = (*p)[:len(*p)-1]
	return last
}

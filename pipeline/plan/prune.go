package plan

// prune finds the steps that each output needs, so that a request runs only those. It removes
// steps that no output needs, for example those of a nested ensemble.
func (c *compiler) prune() error {
	for _, slot := range c.outputs {
		c.needs = append(c.needs, c.upstream(slot))
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
		stack = append(stack, c.leaves[c.writer[slot]].in...)
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

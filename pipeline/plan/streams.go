package plan

import (
	"github.com/tutti-server/tutti/core/config"
)

// A stream is everything that depends on the responses of one decoupled step; stream 0 depends
// on the request alone. A step is in the innermost stream that it reads. Its other inputs must
// be of streams around that one, where every response sees the same tensor.

// stream is one of them.
type stream struct {
	around int32 // the stream that its decoupled step is in
	depth  int32 // how many streams are around it
}

// streams finds the stream of every step and tensor. It refuses a step that would have to pair
// the responses of two independent decoupled steps.
func (c *compiler) streams() error {
	c.flows = []stream{{}}
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

package plan

import (
	"tutti/core/config"
)

// batchDims decides, per input of a step, what happens to the batch dimension of
// the tensor that comes in. Ranks are known: a port that batches has one more than
// it declares.
func (c *compiler) batchDims() error {
	for _, l := range c.levels {
		for _, s := range l.steps {
			if s.sig.MaxBatch > 0 && s.sig.MaxBatch < l.sig.MaxBatch {
				return l.fail(config.Errorf(config.BatchTooSmall, "max_batch_size",
					"ensemble %s allows maximum batch size %d, but it contains model %s which only allows maximum batch size to be %d",
					l.name(), l.sig.MaxBatch, s.model, s.sig.MaxBatch))
			}
		}
	}
	root := c.levels[0]
	ranks := c.ranks()
	for _, s := range c.leaves {
		s.fit = make([]Fit, len(s.in))
		for i, slot := range s.in {
			if slot == None || ranks[slot] < 0 {
				continue
			}
			f, ok := fit(ranks[slot], rank(s.sig, &s.sig.Inputs[i]))
			if !ok {
				return root.errorf(config.ShapesDiffer, "ensemble_scheduling", "ensemble tensor %s has %d dimensions, which no batch dimension makes fit input %s in model %s with %d",
					c.names[slot], ranks[slot], s.sig.Inputs[i].Name, s.model, rank(s.sig, &s.sig.Inputs[i]))
			}
			s.fit[i] = f
		}
	}
	for i, slot := range c.outputs {
		out := &root.sig.Outputs[i]
		f, ok := AsIs, true
		if ranks[slot] >= 0 {
			f, ok = fit(ranks[slot], rank(root.sig, out))
		}
		if !ok {
			return root.errorf(config.ShapesDiffer, "ensemble_scheduling", "ensemble tensor %s has %d dimensions, which no batch dimension makes fit output %s with %d",
				c.names[slot], ranks[slot], out.Name, rank(root.sig, out))
		}
		c.outputFit = append(c.outputFit, f)
	}
	return nil
}

// ranks returns the full rank of every slot as its writer gives it, -1 without one.
func (c *compiler) ranks() []int {
	ranks := make([]int, len(c.names))
	for i := range ranks {
		ranks[i] = -1
	}
	root := c.levels[0]
	for i := range root.sig.Inputs {
		ranks[root.slots[root.sig.Inputs[i].Name]] = rank(root.sig, &root.sig.Inputs[i])
	}
	for _, s := range c.leaves {
		for i, slot := range s.out {
			if slot != None {
				ranks[slot] = rank(s.sig, &s.sig.Outputs[i])
			}
		}
	}
	return ranks
}

func rank(sig *config.Signature, p *config.Port) int {
	full := p.FullDims(sig.MaxBatch)
	return full.Rank()
}

func fit(from, to int) (Fit, bool) {
	switch from - to {
	case 0:
		return AsIs, true
	case 1:
		return Strip, true
	case -1:
		return Prepend, true
	}
	return AsIs, false
}

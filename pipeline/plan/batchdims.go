package plan

import (
	"fmt"

	"github.com/tutti-server/tutti/core/config"
)

// batchDims decides, per input of a step, what happens to the batch dimension of
// the tensor that comes in. Ranks are known: a port that batches has one more than
// it declares.
func (c *compiler) batchDims() error {
	for _, l := range c.levels {
		for _, s := range l.steps {
			if s.sig.MaxBatch > 0 && s.sig.MaxBatch < l.sig.MaxBatch {
				return config.WithFix(l.fail(config.Errorf(config.BatchTooSmall, "max_batch_size",
					"ensemble %s allows maximum batch size %d, but it contains model %s which only allows maximum batch size to be %d",
					l.name(), l.sig.MaxBatch, s.model, s.sig.MaxBatch)), fmt.Sprintf(
					"write max_batch_size: %d into the configuration of '%s' (a model that says nothing and can batch gets 4), or max_batch_size: %d here",
					l.sig.MaxBatch, s.model, s.sig.MaxBatch))
			}
		}
	}
	root := c.levels[0]
	written := c.written()
	for _, s := range c.leaves {
		s.rules = make([]BatchRule, len(s.in))
		for i, slot := range s.in {
			if slot == None || written[slot].rank < 0 {
				continue
			}
			from := &written[slot]
			f, ok := fit(from.rank, rank(s.sig, &s.sig.Inputs[i]))
			if !ok {
				return root.errorf(config.ShapesDiffer, "ensemble_scheduling", "ensemble tensor %s has %d dimensions, which no batch dimension makes fit input %s in model %s with %d",
					c.names[slot], from.rank, s.sig.Inputs[i].Name, s.model, rank(s.sig, &s.sig.Inputs[i]))
			}
			s.rules[i] = f
			s.runtime = from.to(s.runtime, i, len(s.in), s.sig)
		}
	}
	sig := root.sig.AtModel()
	for i, slot := range c.outputs {
		out, from := &sig.Outputs[i], &written[slot]
		f, ok := AsIs, true
		if from.rank >= 0 {
			f, ok = fit(from.rank, rank(sig, out))
		}
		if !ok {
			return root.errorf(config.ShapesDiffer, "ensemble_scheduling", "ensemble tensor %s has %d dimensions, which no batch dimension makes fit output %s with %d",
				c.names[slot], from.rank, out.Name, rank(sig, out))
		}
		c.outputRules = append(c.outputRules, f)
		c.outputRuntime = from.to(c.outputRuntime, i, len(c.outputs), root.sig)
	}
	return nil
}

// producer describes the output that writes a tensor.
type producer struct {
	rank    int  // in full, -1 without a writer
	free    bool // the writer's output is Free
	batches bool // the writer batches
}

// to notes in list how port i of n reads the tensor; the list is made with the first Free one.
func (w *producer) to(list []RuntimeRule, i, n int, reader *config.Signature) []RuntimeRule {
	if !w.free {
		return list
	}
	if list == nil {
		list = make([]RuntimeRule, n)
	}
	switch batches := reader.MaxBatch > 0; {
	case batches == w.batches:
		list[i] = RuntimeAsIs
	case batches:
		list[i] = RuntimePrepend
	default:
		list[i] = RuntimeStrip
	}
	return list
}

// written returns how every slot is written.
func (c *compiler) written() []producer {
	list := make([]producer, len(c.names))
	for i := range list {
		list[i].rank = -1
	}
	root := c.levels[0]
	sig := root.sig.AtModel()
	for i := range sig.Inputs {
		list[root.slots[sig.Inputs[i].Name]].rank = rank(sig, &sig.Inputs[i])
	}
	for _, s := range c.leaves {
		for i, slot := range s.out {
			if slot != None {
				out := &s.sig.Outputs[i]
				list[slot] = producer{rank: rank(s.sig, out), free: out.Free, batches: s.sig.MaxBatch > 0}
			}
		}
	}
	return list
}

func rank(sig *config.Signature, p *config.Port) int {
	full := p.FullDims(sig.MaxBatch)
	return full.Rank()
}

func fit(from, to int) (BatchRule, bool) {
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

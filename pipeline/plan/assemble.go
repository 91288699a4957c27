package plan

import (
	"maps"
	"slices"
)

// assembly builds the plan, in which slots are numbered anew in the order of use:
// the ensemble's inputs, then each step's outputs.
type assembly struct {
	c      *compiler
	plan   *Plan
	number []Slot // of the compiler's slots
}

func (c *compiler) assemble() *Plan {
	root := c.levels[0]
	root.sig.Version = c.version
	a := &assembly{c: c, plan: &Plan{Signature: root.sig, Config: root.cfg, Ensemble: true, Reshape: reshapes(root.sig), OutputNodes: c.needs, OutputRules: c.outputRules, OutputRuntime: c.outputRuntime}}
	a.number = unmapped(len(c.names))
	for i := range root.sig.Inputs {
		a.plan.Inputs = append(a.plan.Inputs, a.slot(root.slots[root.sig.Inputs[i].Name]))
	}
	for i, s := range c.leaves {
		a.plan.Nodes = append(a.plan.Nodes, a.node(int32(i), s))
	}
	for i, slot := range c.outputs {
		a.plan.Outputs = append(a.plan.Outputs, a.slot(slot))
		if out := &root.sig.Outputs[i]; out.Labels == nil {
			out.Labels = root.labels(out.Name)
		}
	}
	a.plan.AllNodes = NewNodeSet(len(c.leaves))
	for _, n := range c.needs {
		a.plan.AllNodes.AddAll(n)
	}
	a.readers()
	a.aliases()
	a.plan.cut()
	return a.plan
}

// aliases lists the names that the ensembles have for their tensors.
func (a *assembly) aliases() {
	p := a.plan
	p.Aliases = make([][]string, p.Slots)
	for _, l := range a.c.levels {
		for _, name := range slices.Sorted(maps.Keys(l.slots)) {
			s := l.slots[name]
			if s == None {
				continue
			}
			if s = a.number[a.c.slot(s)]; s != None && !slices.Contains(p.Aliases[s], name) {
				p.Aliases[s] = append(p.Aliases[s], name)
			}
		}
	}
}

// slot returns the plan's number of a compiler's slot.
func (a *assembly) slot(s Slot) Slot {
	if s == None {
		return None
	}
	if a.number[s] == None {
		a.number[s] = Slot(a.plan.Slots)
		a.plan.Slots++
		a.plan.Names = append(a.plan.Names, a.c.names[s])
	}
	return a.number[s]
}

func (a *assembly) slots(from []Slot) []Slot {
	to := make([]Slot, len(from))
	for i, s := range from {
		to[i] = a.slot(s)
	}
	return to
}

func (a *assembly) node(i int32, s *step) Node {
	n := Node{
		Name: s.name, Model: s.model, ID: s.id, Version: s.version, Signature: s.sig,
		In: a.slots(s.in), Out: a.slots(s.out), Rules: s.rules, Runtime: s.runtime, Reshape: reshapes(s.sig), Ensembles: s.level.path(), Places: s.places,
		Stream: a.c.flows[s.stream].depth, MaxInflight: s.level.cfg.GetEnsembleScheduling().GetMaxInflightRequests(),
	}
	for port, slot := range n.In {
		if slot == None {
			continue
		}
		n.Need++
		for int(slot) >= len(a.plan.Consumers) {
			a.plan.Consumers = append(a.plan.Consumers, nil)
		}
		a.plan.Consumers[slot] = append(a.plan.Consumers[slot], InputRef{Node: i, Port: int32(port)})
	}
	return n
}

func (a *assembly) readers() {
	p := a.plan
	for len(p.Consumers) < p.Slots {
		p.Consumers = append(p.Consumers, nil)
	}
	p.Readers = make([]int32, p.Slots)
	for slot, uses := range p.Consumers {
		p.Readers[slot] = int32(len(uses))
	}
	for _, slot := range p.Outputs {
		p.Readers[slot]++
	}
}

// labels returns the class names of a tensor: those of the output that writes it.
func (l *level) labels(tensor string) []string {
	for _, s := range l.steps {
		for i := range s.sig.Outputs {
			p := &s.sig.Outputs[i]
			if t, mapped := s.cfg.GetOutputMap()[p.Name]; !mapped || t != tensor {
				continue
			}
			if p.Labels == nil && s.inner != nil {
				return s.inner.labels(p.Name)
			}
			return p.Labels
		}
	}
	return nil
}

package plan

import (
	"maps"
	"slices"
)

// assembly builds the plan, whose slots are numbered in the order of use: the ensemble's inputs, then steps' outputs.
type assembly struct {
	c *compiler
	numbering
}

// numbering gives slots numbers in a plan, in the order of use.
type numbering struct {
	plan    *Plan
	number  []Slot     // of the slots
	names   []string   // of the slots
	aliases [][]string // of the slots; nil when they are added later
}

// slot returns the plan's number of a slot.
func (a *numbering) slot(s Slot) Slot {
	if s == None {
		return None
	}
	if a.number[s] == None {
		a.number[s] = Slot(a.plan.Slots)
		a.plan.Slots++
		a.plan.Names = append(a.plan.Names, a.names[s])
		if a.aliases != nil {
			a.plan.Aliases = append(a.plan.Aliases, a.aliases[s])
		}
	}
	return a.number[s]
}

func (a *numbering) slots(from []Slot) []Slot {
	to := make([]Slot, len(from))
	for i, s := range from {
		to[i] = a.slot(s)
	}
	return to
}

func (c *compiler) assemble() *Plan {
	root := c.levels[0]
	root.sig.Version = c.version
	p := &Plan{Signature: root.sig, Config: root.cfg, Ensemble: true, Reshape: reshapes(root.sig), OutputNodes: c.needs, OutputRules: c.outputRules, OutputRuntime: c.outputRuntime}
	a := &assembly{c, numbering{plan: p, number: unmapped(len(c.names)), names: c.names}}
	for i := range root.sig.Inputs {
		p.Inputs = append(p.Inputs, a.slot(root.slots[root.sig.Inputs[i].Name]))
	}
	p.Nodes = make([]Node, 0, len(c.leaves)) // a node is large: no room for more
	for _, s := range c.leaves {
		p.Nodes = append(p.Nodes, a.node(s))
	}
	for i, slot := range c.outputs {
		p.Outputs = append(p.Outputs, a.slot(slot))
		if out := &root.sig.Outputs[i]; out.Labels == nil {
			out.Labels = root.labels(out.Name)
		}
	}
	p.AllNodes = NewNodeSet(len(c.leaves))
	for _, n := range c.needs {
		p.AllNodes.AddAll(n)
	}
	p.link()
	a.rowSets()
	a.aliases()
	p.cut(a.c)
	return p
}

// rowSets notes the row sets of the tensors.
func (a *assembly) rowSets() {
	p := a.plan
	if p.RowSets = a.c.sets; len(p.RowSets) == 0 {
		return
	}
	p.SlotRows = make([]int32, p.Slots)
	for s, to := range a.number {
		if to != None {
			p.SlotRows[to] = a.c.setOf[s]
		}
	}
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

func (a *assembly) node(s *step) Node {
	n := Node{
		Name: s.name, Model: s.model, ID: s.id, Version: s.version, Signature: s.sig,
		In: a.slots(s.in), Out: a.slots(s.out), Rules: s.rules, Runtime: s.runtime, Reshape: reshapes(s.sig), Ensembles: s.level.path(), Places: s.places, Why: s.why, Edge: s.edge,
		MaxInflight: s.level.cfg.GetEnsembleScheduling().GetMaxInflightRequests(),
	}
	for _, slot := range n.In {
		if slot != None {
			n.Need++
		}
	}
	n.Rows, n.Waits = s.set, a.slots(s.waits)
	n.Need += int32(len(n.Waits)) //nolint:gosec // ensembles nest at most 64 deep
	if s.op != nil {
		n.Operation = &Operation{
			When: s.op.when, Chooses: s.op.chooses, Otherwise: s.op.otherwise, Fault: s.op.Faults, Absent: s.op.Absent,
			Demux: s.op.demux, Gather: s.op.gather, Adapter: s.op.adapter, Window: s.op.Window, StreamJoin: s.op.StreamJoin, Route: -1, Alternative: -1,
		}
		a.routed(s, n.Operation)
	}
	if n.Constants = s.constants; s.op == nil || s.op.when != nil {
		n.Params = s.allParams()
	}
	n.Fault, n.FallbackOf, n.Gathers, n.Precision = a.fault(s), s.fallbackOf(), s.gathers, s.precise
	return n
}

// labels returns the class names of a tensor: those of the output that writes it.
func (l *level) labels(tensor string) []string {
	for _, s := range l.steps {
		for i := range s.sig.Outputs {
			p := &s.sig.Outputs[i]
			if t, mapped := s.cfg.GetOutputMap()[p.Name]; !mapped || t != tensor {
				continue
			}
			if s.op != nil && s.op.Joins != nil {
				return l.labels(s.op.In[len(s.op.In)-1]) // the step's own model is the last alternative
			}
			if p.Labels == nil && s.inner != nil {
				return s.inner.labels(p.Name)
			}
			return p.Labels
		}
	}
	return nil
}

// linkWaits adds the steps that wait for a choice to its readers. It is the end of Compile: the passes see readers of tensors only.
func (p *Plan) linkWaits() {
	for i := range p.Nodes {
		for _, s := range p.Nodes[i].Waits {
			p.Consumers[s] = append(p.Consumers[s], InputRef{Node: int32(i), Port: None}) //nolint:gosec // at most maxSteps
		}
	}
}

// link lists the readers of every slot.
func (p *Plan) link() {
	p.Consumers = make([][]InputRef, p.Slots)
	p.Readers = make([]int32, p.Slots)
	for i := range p.Nodes {
		for port, s := range p.Nodes[i].In {
			if s != None {
				p.Consumers[s] = append(p.Consumers[s], InputRef{Node: int32(i), Port: int32(port)})
				p.Readers[s]++
			}
		}
	}
	for _, s := range p.Outputs {
		if s != None {
			p.Readers[s]++
		}
	}
}

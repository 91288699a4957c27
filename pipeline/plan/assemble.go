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
	p.cut()
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
		Stream: a.c.flows[s.stream].depth, MaxInflight: s.level.cfg.GetEnsembleScheduling().GetMaxInflightRequests(),
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
			Demux: s.op.demux, Gather: s.op.gather, Adapter: s.op.adapter, Route: -1, Alternative: -1,
		}
		a.routed(s, n.Operation)
	}
	if n.Constants = s.constants; s.op == nil || s.op.when != nil {
		n.Params = s.allParams()
	}
	n.Fault, n.FallbackOf, n.Gathers = a.fault(s), s.fallbackOf(), s.gathers
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
			if p.Labels == nil && s.inner != nil {
				return s.inner.labels(p.Name)
			}
			return p.Labels
		}
	}
	return nil
}

// Segment is the piece of a plan between two decoupled steps. The first segment runs once per request. Each other one
// runs once per response of the decoupled step that ends the segment before it.
//
// For example, of tokenize -> generate (decoupled) -> detokenize the second segment is detokenize.
type Segment struct {
	// Plan has the segment's steps, with their own numbers for nodes and slots. An output of
	// a later segment has no slot; one of an earlier segment is a shared tensor.
	Plan *Plan
	// First is the number of the segment's first step in the whole plan.
	First int32
	// Producer is the decoupled step whose responses start the next segment; -1 in the last.
	Producer int32
	// Ports holds the slot of each output of the previous segment's producer; None for an output without readers.
	Ports []Slot
	// Shared are the tensors of the previous segment that every run of this one reads. The producer waits for them.
	Shared []SharedTensor
}

// SharedTensor is a tensor of one segment that the next one reads.
type SharedTensor struct {
	From, To Slot
}

// cut divides a plan at its decoupled steps. Every step that is left is needed by an output, and the outputs are in one
// chain of streams. So each stream has at most one decoupled step, and the segments form a chain.
func (p *Plan) cut() {
	depth := int32(0)
	for i := range p.Nodes {
		if p.Nodes[i].Signature.Decoupled {
			depth++
		}
	}
	if depth == 0 {
		return
	}
	k := &cutter{whole: p, level: make([]int32, p.Slots), uses: make([]int32, p.Slots)}
	for i := range p.Nodes {
		n := &p.Nodes[i]
		for _, s := range n.In {
			if s != None {
				k.uses[s] = max(k.uses[s], n.Stream)
			}
		}
		for _, s := range n.Out {
			if s != None {
				k.level[s] = n.Stream
				if n.Signature.Decoupled {
					k.level[s]++
				}
			}
		}
	}
	for _, s := range p.Outputs {
		if s != None {
			k.uses[s] = int32(len(p.Nodes)) // the last segment
		}
	}
	for d := range depth + 1 {
		k.segment(d)
	}
}

// cutter divides a plan.
type cutter struct {
	whole *Plan
	// level is, per slot, the segment that writes it; uses the last segment that reads it.
	level, uses []int32
	numbering   // of the current segment
}

// segment appends the segment of the given depth.
func (k *cutter) segment(depth int32) {
	p := k.whole
	sub := &Plan{Signature: p.Signature, Ensemble: true, Reshape: p.Reshape, OutputRules: p.OutputRules, OutputRuntime: p.OutputRuntime}
	seg := Segment{Plan: sub, Producer: -1, First: int32(len(p.Nodes))}
	before := k.number
	k.numbering = numbering{plan: sub, number: unmapped(p.Slots), names: p.Names, aliases: p.Aliases}
	if depth == 0 {
		sub.Inputs = k.slots(p.Inputs)
	} else {
		k.enter(&seg, &p.Segments[depth-1], depth, before)
	}
	for i := range p.Nodes {
		if n := &p.Nodes[i]; n.Stream == depth {
			seg.First = min(seg.First, int32(i))
			if n.Signature.Decoupled {
				seg.Producer = int32(len(sub.Nodes))
			}
			c := *n
			if c.In, c.Out = k.slots(n.In), unmapped(len(n.Out)); !n.Signature.Decoupled { // else they are of the next segment
				c.Out = k.slots(n.Out)
			}
			sub.Nodes = append(sub.Nodes, c)
		}
	}
	sub.AllNodes = NewNodeSet(len(sub.Nodes))
	for i := range sub.Nodes {
		sub.AllNodes.Add(int32(i))
	}
	for i, s := range p.Outputs {
		out := None
		if s != None {
			out = k.number[s]
		}
		sub.Outputs = append(sub.Outputs, out)
		mine := NewNodeSet(len(sub.Nodes))
		for n := range sub.Nodes {
			if p.OutputNodes[i].Contains(seg.First + int32(n)) {
				mine.Add(int32(n))
			}
		}
		sub.OutputNodes = append(sub.OutputNodes, mine)
	}
	sub.link()
	p.Segments = append(p.Segments, seg)
}

// enter binds the tensors of the previous segment, whose slot numbers are before, and makes its producer wait for them.
func (k *cutter) enter(seg, outer *Segment, depth int32, before []Slot) {
	producer := &outer.Plan.Nodes[outer.Producer]
	for s := range Slot(len(k.level)) {
		if k.level[s] >= depth || k.uses[s] < depth {
			continue
		}
		from := before[s]
		seg.Shared = append(seg.Shared, SharedTensor{From: from, To: k.slot(s)})
		outer.Plan.Consumers[from] = append(outer.Plan.Consumers[from], InputRef{Node: outer.Producer, Port: None})
		outer.Plan.Readers[from]++
		producer.Need++
	}
	seg.Ports = k.slots(k.whole.Nodes[outer.First+outer.Producer].Out)
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

package plan

// Part is a closed piece of a plan with decoupled steps: the first one runs once for
// a request, each other one once for every answer of the decoupled step that is in
// the part before it.
type Part struct {
	// Plan has the part's steps, with numbers of its own for steps and tensors. An
	// output that only a later part knows has no slot; one of an earlier part is an
	// import that is passed on.
	Plan *Plan
	// First is the number that the part's first step has in the whole plan.
	First int32
	// Producer is the decoupled step of this part whose answers start the next one,
	// -1 in the last part.
	Producer int32
	// Ports holds the slot of each output of the producer of the part before, None
	// for what nobody reads.
	Ports []Slot
	// Imports are the tensors of the part before that every run of this part shares.
	// The producer waits for them.
	Imports []Import
}

// Import is a tensor of one part that the next one reads.
type Import struct {
	From, To Slot
}

// cut divides a plan at its decoupled steps. Each one that is left is wanted by an
// output, and the outputs are all in one chain of streams, so there is at most one in
// each stream and the parts are a chain too.
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
	k.levels()
	for d := range depth + 1 {
		k.part(d)
	}
}

// cutter divides a plan.
type cutter struct {
	whole *Plan
	// level has the part that each slot is written in, uses the last one it is read in.
	level, uses []int32
	local       []Slot // numbers of the whole plan's slots in the part at hand
}

func (k *cutter) levels() {
	p := k.whole
	for i := range p.Nodes {
		n := &p.Nodes[i]
		for _, s := range n.In {
			if s != None {
				k.uses[s] = max(k.uses[s], n.Stream)
			}
		}
		at := n.Stream
		if n.Signature.Decoupled {
			at++
		}
		for _, s := range n.Out {
			if s != None {
				k.level[s] = at
			}
		}
	}
	for _, s := range p.Outputs {
		if s != None {
			k.uses[s] = int32(len(p.Nodes)) // the last part, whichever that is
		}
	}
}

// part appends the part of the given depth.
func (k *cutter) part(depth int32) {
	p := k.whole
	sub := &Plan{Signature: p.Signature, Ensemble: true, Reshape: p.Reshape, OutputFit: p.OutputFit, OutputFree: p.OutputFree}
	part := Part{Plan: sub, Producer: -1, First: int32(len(p.Nodes))}
	before := k.local
	k.local = unmapped(p.Slots)
	if depth == 0 {
		for _, s := range p.Inputs {
			sub.Inputs = append(sub.Inputs, k.slot(sub, s))
		}
	} else {
		k.enter(&part, &p.Parts[depth-1], depth, before)
	}
	for i := range p.Nodes {
		if n := &p.Nodes[i]; n.Stream == depth {
			part.First = min(part.First, int32(i))
			if n.Signature.Decoupled {
				part.Producer = int32(len(sub.Nodes))
			}
			sub.Nodes = append(sub.Nodes, k.node(sub, n))
		}
	}
	sub.AllNodes = NewBits(len(sub.Nodes))
	for i := range sub.Nodes {
		sub.AllNodes.Set(int32(i))
	}
	for i, s := range p.Outputs {
		out := None
		if s != None {
			out = k.local[s]
		}
		sub.Outputs = append(sub.Outputs, out)
		mine := NewBits(len(sub.Nodes))
		for n := range sub.Nodes {
			if p.OutputNodes[i].Has(part.First + int32(n)) {
				mine.Set(int32(n))
			}
		}
		sub.OutputNodes = append(sub.OutputNodes, mine)
	}
	sub.link()
	p.Parts = append(p.Parts, part)
}

// slot returns the part's number of a slot of the whole plan.
func (k *cutter) slot(sub *Plan, s Slot) Slot {
	if s == None {
		return None
	}
	if k.local[s] == None {
		k.local[s] = Slot(sub.Slots)
		sub.Slots++
		sub.Names = append(sub.Names, k.whole.Names[s])
		if k.whole.Aliases != nil {
			sub.Aliases = append(sub.Aliases, k.whole.Aliases[s])
		}
	}
	return k.local[s]
}

// enter binds what comes from the part before, whose numbers are given, and has its
// producer wait for it.
func (k *cutter) enter(part, outer *Part, depth int32, before []Slot) {
	producer := &outer.Plan.Nodes[outer.Producer]
	for s := range Slot(len(k.level)) {
		if k.level[s] >= depth || k.uses[s] < depth {
			continue
		}
		from := before[s]
		part.Imports = append(part.Imports, Import{From: from, To: k.slot(part.Plan, s)})
		outer.Plan.Consumers[from] = append(outer.Plan.Consumers[from], Use{Node: outer.Producer, Port: None})
		outer.Plan.Readers[from]++
		producer.Need++
	}
	for _, s := range k.whole.Nodes[outer.First+outer.Producer].Out {
		part.Ports = append(part.Ports, k.slot(part.Plan, s))
	}
}

// node returns a node in the part's numbers. What a decoupled one puts out belongs to
// the next part.
func (k *cutter) node(sub *Plan, n *Node) Node {
	c := *n
	c.In, c.Out = unmapped(len(n.In)), unmapped(len(n.Out))
	for i, s := range n.In {
		c.In[i] = k.slot(sub, s)
	}
	if !n.Signature.Decoupled {
		for i, s := range n.Out {
			c.Out[i] = k.slot(sub, s)
		}
	}
	return c
}

// link lists the readers of every slot.
func (p *Plan) link() {
	p.Consumers = make([][]Use, p.Slots)
	p.Readers = make([]int32, p.Slots)
	for i := range p.Nodes {
		for port, s := range p.Nodes[i].In {
			if s != None {
				p.Consumers[s] = append(p.Consumers[s], Use{Node: int32(i), Port: int32(port)})
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

package plan

import (
	"slices"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
)

// Part is what one run of a plan with fan-outs executes: the steps outside of every fan-out, or those of one for a group of its items. A node
// with Operation.FanOut stands for a fan-out in the part around it.
//
// For example, of crop -> demux -> classify -> gather -> count the first part is crop -> fan-out -> count, and that of the fan-out is classify.
type Part struct {
	// Plan has the part's steps, with their own numbers for nodes and slots.
	Plan *Plan
	// Numbers holds, per node, its number in the whole plan. That of a fan-out is its demux's.
	Numbers []int32
	// Meets holds, per node, how many rows of tasks make a full batch where the groups of the fan-out wait for each other, and 0 elsewhere;
	// nil where they never do.
	Meets []int32
}

// FanOut is a fan-out as a node of the part around it. Its inputs are those of its demux, then the tensors that its steps read from around it; its
// outputs are those of its gathers. All inputs but the demux's have a row for each row around.
type FanOut struct {
	Part
	Demux *Demux
	// Name is the tensor of the items, for messages.
	Name string
	// Items holds, per tensor of the demux, the slot of Plan that receives the items.
	Items []Slot
	// First is the first input that is not the demux's, and Around holds the slots of Plan that receive those inputs' rows.
	First  int
	Around []Slot
	// Gathers are the tensors to collect.
	Gathers []Gathered
	// MaxRows bounds the items of one group: each of its steps takes as many.
	MaxRows int
	// Inside reports that the fan-out is in another one.
	Inside bool
}

// Gathered is a tensor that a fan-out collects.
type Gathered struct {
	*Gather
	Name string
	// Slot is that of the items, in the plan of the fan-out. Batched reports that its tensor has the dimension of the items.
	Slot  Slot
	Rule  BatchRule
	Step  string // that writes the items
	DType tensor.DType
	Dims  tensor.Shape // of an item
	// Out is the output of the node, and CountsOut that of the counts or -1.
	Out, CountsOut int32
}

// divide makes the parts of a plan with fan-outs.
func (p *Plan) divide() {
	if !slices.ContainsFunc(p.RowSets, func(s RowSet) bool { return s.FanOut }) {
		return
	}
	d := &divider{whole: p, home: make([]int32, p.Slots)}
	for s := range d.home {
		d.home[s] = d.fanOutOf(p.SlotRows[s])
	}
	p.First = &d.part(0, nil).Part
}

// divider makes parts.
type divider struct {
	whole *Plan
	home  []int32 // per slot: the fan-out that it is in, 0 for none
}

func (d *divider) fanOutOf(set int32) int32 {
	for set != 0 && !d.whole.RowSets[set].FanOut {
		set = d.whole.RowSets[set].Parent
	}
	return set
}

// outer is a tensor from around a fan-out. Whole reports that it has no batch dimension: it is the only row.
type outer struct {
	slot  Slot
	whole bool
}

// part is a part that is being made.
type part struct {
	Part
	d   *divider
	set int32
	numbering
	sets   []int32 // per row set of the whole plan: its number here, -1 for none
	outer  []outer // tensors from around it, in the order of around
	around []Slot
	rows   int
}

// part makes the part of the fan-out with row set f, 0 for the one outside of all.
func (d *divider) part(f int32, demux *Node) *part {
	p := d.whole
	sub := &Plan{
		Signature: p.Signature, Config: p.Config, Ensemble: true, Reshape: p.Reshape, OutputRules: p.OutputRules, OutputRuntime: p.OutputRuntime,
		Devices: p.Devices, Limit: p.Limit, Aliases: [][]string{},
	}
	k := &part{Part: Part{Plan: sub}, d: d, set: f, rows: many, numbering: numbering{plan: sub, number: unmapped(p.Slots), names: p.Names, aliases: p.Aliases}}
	k.rowSets()
	if f == 0 {
		sub.Inputs, sub.Routes = k.slots(p.Inputs), p.Routes // no route is in a fan-out
	} else {
		k.slots(demux.Out)
	}
	for i := range p.Nodes {
		k.node(int32(i)) //nolint:gosec // at most maxSteps
	}
	k.outputs()
	sub.link()
	sub.linkWaits()
	if f != 0 {
		k.Meets = sub.meetings()
	}
	return k
}

// rowSets numbers the row sets of a part: the fan-out itself is set 0.
func (k *part) rowSets() {
	p := k.d.whole
	k.sets = unmapped(len(p.RowSets))
	var list []RowSet
	for s := range p.RowSets {
		if k.d.fanOutOf(int32(s)) != k.set { //nolint:gosec // as many as steps
			continue
		}
		k.sets[s] = int32(len(list)) //nolint:gosec // as many as steps
		set := RowSet{Text: p.RowSets[s].Text, Fault: p.RowSets[s].Fault, Route: p.RowSets[s].Route, Alternative: p.RowSets[s].Alternative}
		if len(list) > 0 {
			set.Parent = k.sets[p.RowSets[s].Parent]
		}
		list = append(list, set)
	}
	k.plan.RowSets = list
}

// node adds node i of the whole plan, if it is of this part.
func (k *part) node(i int32) {
	p := k.d.whole
	n := &p.Nodes[i]
	if k.d.fanOutOf(n.Rows) != k.set || n.Operation != nil && n.Operation.Gather != nil {
		return
	}
	if n.Operation != nil && n.Operation.Demux != nil {
		k.add(k.fanOut(n), i)
		return
	}
	c := *n
	c.Rows, c.Out, c.Waits = k.sets[n.Rows], k.slots(n.Out), k.slots(n.Waits)
	c.In, c.Rules, c.Runtime = slices.Clone(n.In), slices.Clone(n.Rules), slices.Clone(n.Runtime)
	batches := n.Signature.MaxBatch > 0
	for port, s := range n.In {
		if c.In[port] = k.read(&c, port, s, batches); s != None && k.d.home[s] != k.set && c.Runtime != nil && c.Runtime[port] != Declared {
			c.Runtime[port] = RuntimeAsIs
			if !batches {
				c.Runtime[port] = RuntimeStrip
			}
		}
	}
	if n.Operation != nil {
		op := *n.Operation
		op.Chooses = max(k.sets[op.Chooses], 0)
		c.Operation = &op
	}
	if n.Fault != nil {
		f := *n.Fault
		f.Succeeded, f.Failed, f.Waits = max(k.sets[f.Succeeded], 0), max(k.sets[f.Failed], 0), k.slot(f.Waits)
		c.Fault = &f
	}
	if n.Operation == nil || !batches {
		k.rows = min(k.rows, max(n.Signature.MaxBatch, 1))
	}
	k.add(c, i)
}

func (k *part) add(n Node, number int32) {
	k.plan.Nodes, k.Numbers = append(k.plan.Nodes, n), append(k.Numbers, number)
}

// read returns the slot of an input of node n, which reads slot s of the whole plan. A tensor from around the fan-out comes with a row for each item.
func (k *part) read(n *Node, port int, s Slot, batches bool) Slot {
	if s == None || k.d.home[s] == k.set {
		return k.slot(s)
	}
	o := outer{slot: s, whole: n.Rules[port] == Prepend || n.Rules[port] == AsIs && !batches}
	if n.Runtime != nil && n.Runtime[port] != Declared {
		o.whole = n.Runtime[port] == RuntimePrepend || n.Runtime[port] == RuntimeAsIs && !batches
	}
	n.Rules[port] = AsIs
	if !batches {
		n.Rules[port] = Strip
	}
	return k.enter(o)
}

// enter returns the slot of a tensor from around the fan-out.
func (k *part) enter(o outer) Slot {
	at := slices.Index(k.outer, o)
	if at < 0 {
		at = len(k.outer)
		before := k.number[o.slot]
		k.number[o.slot] = None // it may enter twice, whole and by rows
		k.outer, k.around = append(k.outer, o), append(k.around, k.slot(o.slot))
		k.number[o.slot] = before
	}
	return k.around[at]
}

// fanOut returns the node that stands for the fan-out of a demux.
func (k *part) fanOut(n *Node) Node {
	p := k.d.whole
	f := k.d.home[n.Out[0]]
	inner := k.d.part(f, n)
	sig := *n.Signature
	sig.Inputs, sig.Outputs = slices.Clone(sig.Inputs), nil
	c := *n
	c.Signature, c.Rows, c.Waits, c.Out = &sig, k.sets[n.Rows], k.slots(n.Waits), nil
	c.In, c.Rules, c.Runtime = slices.Clone(n.In), slices.Clone(n.Rules), nil
	op := &FanOut{
		Part: inner.Part, Demux: n.Operation.Demux, Name: n.Items(), Items: inner.slots(n.Out), First: len(n.In), Around: inner.around,
		MaxRows: inner.rows, Inside: k.set != 0,
	}
	for port, s := range n.In {
		c.In[port] = k.read(&c, port, s, op.Demux.Batched)
	}
	for _, o := range inner.outer {
		rule := AsIs
		if o.whole {
			rule = Prepend
		}
		_, port := p.producer(o.slot)
		sig.Inputs = append(sig.Inputs, config.Port{Name: p.Names[o.slot], DType: port.DType, Dims: port.Dims, Optional: true})
		c.Rules = append(c.Rules, rule)
		c.In = append(c.In, k.read(&c, len(c.In), o.slot, true))
	}
	for i := range p.Nodes {
		if g := &p.Nodes[i]; g.Operation != nil && g.Operation.Gather != nil && k.d.home[g.In[0]] == f {
			op.gather(k, inner, g, &c)
		}
	}
	c.Need = 0
	for _, s := range slices.Concat(c.In, c.Waits) {
		if s != None {
			c.Need++
		}
	}
	c.Operation = &Operation{FanOut: op}
	if !op.Demux.Batched {
		k.rows = 1
	}
	return c
}

// gather adds the outputs of a gather to the node of a fan-out.
func (f *FanOut) gather(k, inner *part, g, c *Node) {
	t := Gathered{
		Gather: g.Operation.Gather, Name: k.d.whole.Names[g.In[0]], Slot: inner.slot(g.In[0]), Rule: g.Rules[0], CountsOut: -1,
		DType: g.Signature.Inputs[0].DType, Dims: g.Signature.Inputs[0].Dims, Out: int32(len(c.Out)), //nolint:gosec // few
	}
	for i := range k.d.whole.Nodes {
		if n := &k.d.whole.Nodes[i]; slices.Contains(n.Out, g.In[0]) {
			t.Step = n.Name
		}
	}
	inner.plan.Readers[t.Slot]++
	if t.Counts {
		t.CountsOut = t.Out + 1
	}
	c.Out = append(c.Out, k.slots(g.Out)...)
	c.Signature.Outputs = append(c.Signature.Outputs, g.Signature.Outputs...)
	f.Gathers = append(f.Gathers, t)
}

// outputs notes which nodes the outputs need, and the row sets of the tensors.
func (k *part) outputs() {
	p, sub := k.d.whole, k.plan
	sub.AllNodes = NewNodeSet(len(sub.Nodes))
	for i := range sub.Nodes {
		sub.AllNodes.Add(int32(i)) //nolint:gosec // at most maxSteps
	}
	for i, s := range p.Outputs {
		out := None
		if k.set == 0 {
			out = k.slot(s)
		}
		sub.Outputs = append(sub.Outputs, out)
		mine := NewNodeSet(len(sub.Nodes))
		for n, number := range k.Numbers {
			if p.OutputNodes[i].Contains(number) {
				mine.Add(int32(n)) //nolint:gosec // at most maxSteps
			}
		}
		sub.OutputNodes = append(sub.OutputNodes, mine)
	}
	if len(sub.RowSets) == 1 && !slices.ContainsFunc(sub.Nodes, func(n Node) bool { return n.Operation != nil }) {
		sub.RowSets = nil
		return
	}
	sub.SlotRows = make([]int32, sub.Slots)
	for s, to := range k.number {
		if to != None {
			sub.SlotRows[to] = k.sets[p.SlotRows[s]]
		}
	}
}

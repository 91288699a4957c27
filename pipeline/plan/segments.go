package plan

import (
	"slices"
	"strconv"

	"github.com/tutti-server/tutti/core/config"
)

// Segment is the steps of one stream. That of stream 0 runs once per request. Each other one runs once per response of the decoupled step that
// begins the stream, or once per tensor that an operation on streams makes.
//
// For example, of tokenize -> generate (decoupled) -> detokenize the segment of stream 1 is detokenize. Of frames (decoupled) and texts (decoupled), joined
// for describe, there are segments for each frame, for each text and for each pair: the third one is describe, and the other two feed it.
type Segment struct {
	// Plan has the segment's steps, with their own numbers for nodes and slots. An output of another stream has no slot, unless it is a shared
	// tensor. A node with Operation.Feed brings tensors of this stream to the operation that reads them.
	Plan *Plan
	// Numbers holds, per node, its number in the whole plan; that of a feed is its operation's.
	Numbers []int32
	// Parent is the segment around this one, in whose runs its runs begin; -1 for that of stream 0.
	Parent int32
	// Producer is the decoupled step that begins the stream, in Parent's plan; None where an operation does.
	Producer int32
	// Operator is the number, in the whole plan, of the operation that makes the stream; None where a decoupled step does.
	Operator int32
	// Sides are, per side of the operation, the segment that feeds it. Windows have one side, which may be Parent.
	Sides []int32
	// Ports holds the slot of each output of the producer or the operation; None for an output without readers.
	Ports []Slot
	// Shared are the tensors of Parent that every run of this one reads. They are known before the stream begins: the nodes Begin of Parent's
	// plan wait for them.
	Shared []SharedTensor
	Begin  []int32
}

// SharedTensor is a tensor of one segment that another one reads. Writer is the node of the outer segment that writes it, -1 if none does.
type SharedTensor struct {
	From, To Slot
	Writer   int32
}

// Feed is what a stream does for an operation that reads it.
type Feed struct {
	// Stream is the segment that the operation begins, and Side the side of the operation.
	Stream, Side int32
	// Ports holds, per input of the node, the port of the operation.
	Ports []int32
	// Whole reports that the tensors are of the stream around that of the operation: they are its only item.
	Whole bool
}

// cut divides a plan into the segments of its streams.
func (p *Plan) cut(c *compiler) {
	p.Early, p.Limit = config.EarlyOutputs(c.root), config.Limit(c.root)
	used := []int32{0} // streams that have steps, outer ones and sources first
	for _, s := range c.leaves {
		out := s.stream
		if s.sig.Decoupled {
			out = c.origin[s.out[slices.IndexFunc(s.out, func(slot Slot) bool { return slot != None })]]
		}
		used = append(used, s.stream, out)
	}
	slices.Sort(used)
	if used = slices.Compact(used); len(used) == 1 {
		return
	}
	at := func(flow int32) int32 { return int32(slices.Index(used, flow)) } //nolint:gosec // as many as steps
	k := &cutter{whole: p, streams: make([]int32, p.Slots), needs: make([][]bool, len(used))}
	for i, flow := range used {
		seg := Segment{Parent: at(c.flows[flow].around), Producer: None, Operator: None}
		if i == 0 {
			seg.Parent = -1
		}
		p.Segments = append(p.Segments, seg)
	}
	for i, s := range c.leaves {
		n := &p.Nodes[i]
		n.Stream = at(s.stream)
		for port, slot := range n.Out {
			if slot != None {
				k.streams[slot] = at(c.origin[s.out[port]])
			}
		}
	}
	for _, s := range p.Outputs {
		p.OutputStreams = append(p.OutputStreams, k.stream(s))
	}
	k.operators()
	for i := range p.Segments {
		k.needs[i] = k.needed(int32(i)) //nolint:gosec // as many as steps
	}
	for i := range p.Segments {
		k.segment(int32(i)) //nolint:gosec // as many as steps
	}
}

// cutter divides a plan.
type cutter struct {
	whole   *Plan
	streams []int32  // per slot: the segment that writes it
	needs   [][]bool // per segment: the slots that it, or one inside of it, reads
	numbers []numbering
}

func (k *cutter) stream(s Slot) int32 {
	if s == None {
		return 0
	}
	return k.streams[s]
}

// operators notes which segments feed the operations on streams.
func (k *cutter) operators() {
	for i := range k.whole.Nodes {
		n := &k.whole.Nodes[i]
		if !n.onStreams() {
			continue
		}
		seg := &k.whole.Segments[n.Stream]
		seg.Operator = int32(i) //nolint:gosec // at most maxSteps
		for _, s := range n.In {
			if from := k.stream(s); !slices.Contains(seg.Sides, from) {
				seg.Sides = append(seg.Sides, from)
			}
		}
	}
}

// onStreams reports whether the node makes a stream of others.
func (n *Node) onStreams() bool {
	return n.Operation != nil && (n.Operation.Window != nil || n.Operation.StreamJoin != nil)
}

// inside reports whether segment a is b or begins in it, directly or not.
func (k *cutter) inside(a, b int32) bool {
	for a > b {
		a = k.whole.Segments[a].Parent
	}
	return a == b
}

// needed returns which tensors a segment, or one inside of it, reads. An output counts where a segment may respond with it.
func (k *cutter) needed(at int32) []bool {
	p := k.whole
	needs := make([]bool, p.Slots)
	for i := range p.Nodes {
		n := &p.Nodes[i]
		if n.onStreams() || !k.inside(n.Stream, at) {
			continue
		}
		for _, s := range n.In {
			if s != None {
				needs[s] = true
			}
		}
	}
	responds := slices.ContainsFunc(p.OutputStreams, func(s int32) bool { return k.inside(s, at) })
	for _, s := range p.Outputs {
		if s != None && responds && !p.Early {
			needs[s] = true
		}
	}
	return needs
}

// segment makes the plan of a segment, behind those that it depends on.
func (k *cutter) segment(at int32) {
	p := k.whole
	seg := &p.Segments[at]
	sub := &Plan{Signature: p.Signature, Ensemble: true, Reshape: p.Reshape, OutputRules: p.OutputRules, OutputRuntime: p.OutputRuntime, Early: p.Early, Limit: p.Limit}
	seg.Plan = sub
	k.numbers = append(k.numbers, numbering{plan: sub, number: unmapped(p.Slots), names: p.Names, aliases: p.Aliases})
	num := &k.numbers[at]
	if at == 0 {
		sub.Inputs = num.slots(p.Inputs)
	} else {
		k.enter(at)
	}
	for i := range p.Nodes {
		n := &p.Nodes[i]
		switch {
		case n.onStreams():
			k.feed(seg, at, int32(i)) //nolint:gosec // at most maxSteps
			continue
		case n.Stream != at:
			continue
		}
		c := *n
		if c.In, c.Out = num.slots(n.In), unmapped(len(n.Out)); !n.Signature.Decoupled { // else they are of another segment
			c.Out = num.slots(n.Out)
		}
		seg.add(&c, int32(i)) //nolint:gosec // at most maxSteps
	}
	sub.AllNodes = NewNodeSet(len(sub.Nodes))
	for i := range sub.Nodes {
		sub.AllNodes.Add(int32(i)) //nolint:gosec // at most maxSteps
	}
	for i, s := range p.Outputs {
		out := None
		if s != None && (!p.Early || p.OutputStreams[i] == at) { // with early outputs the stream that writes it sends it
			out = num.number[s]
		}
		sub.Outputs = append(sub.Outputs, out)
		mine := NewNodeSet(len(sub.Nodes))
		for n, number := range seg.Numbers {
			if p.OutputNodes[i].Contains(number) {
				mine.Add(int32(n)) //nolint:gosec // at most maxSteps
			}
		}
		sub.OutputNodes = append(sub.OutputNodes, mine)
	}
	sub.link()
	k.await(at)
}

// add appends a step to a segment.
func (seg *Segment) add(n *Node, number int32) {
	seg.Plan.Nodes, seg.Numbers = append(seg.Plan.Nodes, *n), append(seg.Numbers, number)
}

// feed adds the node that brings the tensors of segment at to operation i, if it reads any.
func (k *cutter) feed(seg *Segment, at, i int32) {
	n := &k.whole.Nodes[i]
	side := slices.Index(k.whole.Segments[n.Stream].Sides, at)
	if side < 0 {
		return
	}
	sig := *n.Signature
	sig.Inputs, sig.Outputs = nil, nil
	c := *n
	c.Signature, c.In, c.Out, c.Rules, c.Runtime, c.Need = &sig, nil, nil, nil, nil, 0
	f := &Feed{Stream: n.Stream, Side: int32(side), Whole: k.whole.Segments[n.Stream].Parent == at} //nolint:gosec // few
	for port, s := range n.In {
		if k.stream(s) != at {
			continue
		}
		f.Ports = append(f.Ports, int32(port)) //nolint:gosec // few
		sig.Inputs = append(sig.Inputs, n.Signature.Inputs[port])
		c.In, c.Rules = append(c.In, k.numbers[at].slot(s)), append(c.Rules, n.Rules[port])
		if n.Runtime != nil {
			c.Runtime = append(c.Runtime, n.Runtime[port])
		}
		c.Need++
	}
	c.Operation = &Operation{Window: n.Operation.Window, StreamJoin: n.Operation.StreamJoin, Feed: f, Route: -1, Alternative: -1}
	seg.add(&c, i)
}

// enter binds the tensors that a segment gets from around it.
func (k *cutter) enter(at int32) {
	p := k.whole
	seg := &p.Segments[at]
	num, outer := &k.numbers[at], &k.numbers[seg.Parent]
	for s := range Slot(p.Slots) { //nolint:gosec // few
		if from := outer.number[s]; k.needs[at][s] && !k.inside(k.streams[s], at) && from != None {
			seg.Shared = append(seg.Shared, SharedTensor{From: from, To: num.slot(s), Writer: -1})
		}
	}
	begins := seg.Operator
	if begins == None {
		begins = k.producer(at)
		seg.Producer = int32(slices.Index(p.Segments[seg.Parent].Numbers, begins)) //nolint:gosec // at most maxSteps
	}
	seg.Ports = num.slots(p.Nodes[begins].Out)
}

// producer returns the decoupled step that begins a stream.
func (k *cutter) producer(at int32) int32 {
	for i := range k.whole.Nodes {
		n := &k.whole.Nodes[i]
		if n.Signature.Decoupled && !n.onStreams() && slices.ContainsFunc(n.Out, func(s Slot) bool { return s != None && k.streams[s] == at }) {
			return int32(i) //nolint:gosec // at most maxSteps
		}
	}
	panic("stream " + strconv.Itoa(int(at)) + " has no producer")
}

// await makes the nodes that begin a segment wait for the tensors that it shares.
func (k *cutter) await(at int32) {
	seg := &k.whole.Segments[at]
	if seg.Parent < 0 {
		return
	}
	outer := k.whole.Segments[seg.Parent].Plan
	seg.Begin = k.beginners(at)
	for i := range seg.Shared {
		in := &seg.Shared[i]
		in.Writer = int32(slices.IndexFunc(outer.Nodes, func(n Node) bool { return slices.Contains(n.Out, in.From) })) //nolint:gosec // at most maxSteps
		outer.Readers[in.From]++
		for _, n := range seg.Begin {
			outer.Consumers[in.From] = append(outer.Consumers[in.From], InputRef{Node: n, Port: None})
			outer.Nodes[n].Need++
		}
	}
}

// beginners returns the nodes of the segment around segment at without which none of its runs begins: decoupled steps, and feeds of the
// request's own tensors.
func (k *cutter) beginners(at int32) (list []int32) {
	seg := &k.whole.Segments[at]
	if seg.Operator == None {
		return []int32{seg.Producer}
	}
	for _, side := range seg.Sides {
		if side != seg.Parent {
			list = append(list, k.beginners(side)...)
			continue
		}
		list = append(list, int32(slices.IndexFunc(k.whole.Segments[side].Plan.Nodes, func(n Node) bool { //nolint:gosec // at most maxSteps
			return n.Operation != nil && n.Operation.Feed != nil && n.Operation.Feed.Stream == at
		})))
	}
	return list
}

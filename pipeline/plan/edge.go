package plan

import (
	"fmt"
	"slices"
)

// placeEdges decides the sides of the steps that run where their neighbours run. It moves as few bytes as it can: it starts once with
// all of them on devices and once on the host, moves single steps as long as that helps, and takes the better end. Without any
// other step on a device they stay on the host.
//
// For example, between an image that is decoded on the host and a model on a GPU, resize and normalise run on the GPU, and so does the
// softmax after it, whose few results are copied to the host in place of all scores.
func (p *Plan) placeEdges() {
	if !slices.ContainsFunc(p.Nodes, func(n Node) bool { return n.Edge }) {
		return
	}
	if !p.placed() {
		for i := range p.Nodes {
			if n := &p.Nodes[i]; n.Edge {
				n.Why = "KIND_AUTO, and no neighbour runs on a device"
			}
		}
		return
	}
	p.setEdges(false)
	least := p.settleEdges()
	host := make([]bool, len(p.Nodes))
	for i := range p.Nodes {
		host[i] = p.Nodes[i].OnDevice
	}
	p.setEdges(true)
	if p.settleEdges() > least {
		for i := range p.Nodes {
			p.Nodes[i].OnDevice = host[i]
		}
	}
	for i := range p.Nodes {
		if n := &p.Nodes[i]; n.Edge {
			more := p.flip(n)
			n.OnDevice = !n.OnDevice
			n.Why = fmt.Sprintf("KIND_AUTO: on its other side %s more would be copied per request", bytesText(more))
		}
	}
}

func (p *Plan) setEdges(onDevice bool) {
	for i := range p.Nodes {
		if n := &p.Nodes[i]; n.Edge {
			n.OnDevice = onDevice
		}
	}
}

// settleEdges moves single steps to their other side as long as that saves copies, and returns the cost at the end.
func (p *Plan) settleEdges() int64 {
	cost := p.copyCost()
	for better := true; better; {
		better = false
		for i := range p.Nodes {
			n := &p.Nodes[i]
			if !n.Edge {
				continue
			}
			if more := p.flip(n); more < 0 {
				cost, better = cost+more, true
			} else {
				n.OnDevice = !n.OnDevice
			}
		}
	}
	return cost
}

// flip moves a step to its other side and returns by how much the cost grows. Only the tensors that it reads and writes matter.
func (p *Plan) flip(n *Node) (more int64) {
	around := slices.Concat(n.In, n.Out)
	slices.Sort(around)
	around = slices.Compact(around)
	for _, s := range around {
		if s != None {
			more -= p.copyCostOf(s)
		}
	}
	n.OnDevice = !n.OnDevice
	for _, s := range around {
		if s != None {
			more += p.copyCostOf(s)
		}
	}
	return more
}

const (
	// unknownSize stands for the bytes of a tensor with variable dimensions.
	unknownSize = 64 << 10
	// perCopy is added to the bytes of every copy, so that of equal sizes fewer copies win.
	perCopy = 256
)

// copyCost returns the bytes that are copied between the host and devices for a request of one row.
func (p *Plan) copyCost() (cost int64) {
	for s := range p.Consumers {
		cost += p.copyCostOf(Slot(s))
	}
	return cost
}

func (p *Plan) copyCostOf(s Slot) int64 {
	from := p.origin(s).OnDevice // never for BYTES
	crosses := from && slices.Contains(p.Outputs, s)
	for _, u := range p.Consumers[s] {
		n := &p.Nodes[u.Node]
		if n.Signature.AnyPlace || n.Signature.Inputs[u.Port].OnHost() {
			continue
		}
		crosses = crosses || n.OnDevice != from
	}
	if !crosses {
		return 0
	}
	if size, _, fixed := p.Size(s); fixed {
		return size + perCopy
	}
	return unknownSize
}

// bytesText is a number of bytes as the plan prints it.
func bytesText(n int64) string { return fmt.Sprintf("%d bytes", n) }

package plan

import (
	"math"

	"github.com/tutti-server/tutti/core/config"
)

// Groups of one fan-out reach a node at different times: they differ in shape, so the steps before execute them apart. Where such a step makes
// the shapes equal, or executes fewer rows at a time, the next model could execute all of them as one batch. Tasks wait there for those of the
// other groups, if the model batches across requests: it would otherwise execute the first of them alone. Concurrent models, such as native
// steps, have an instance for each processor, and execute the first groups while the others are on their way.
//
// For example, of crop -> demux -> resize -> classify -> gather, with crops of four shapes, resize executes four batches and classify one.

// sources describes the steps before a node, back to where groups last met.
type sources struct {
	rows int // the smallest batch
	free int // the most variable dims of an input
}

// add counts in further steps.
func (s *sources) add(o sources) { s.rows, s.free = min(s.rows, o.rows), max(s.free, o.free) }

// meetings returns Part.Meets for the part of a fan-out.
func (p *Plan) meetings() []int32 {
	writer := make([]int32, p.Slots)
	for s := range writer {
		writer[s] = -1
	}
	var meets []int32
	before := make([]sources, len(p.Nodes)) // of what reads the node's outputs
	for i := range p.Nodes {
		n := &p.Nodes[i]
		from := sources{rows: many}
		for _, s := range n.In {
			if s != None && writer[s] >= 0 {
				from.add(before[writer[s]])
			}
		}
		own := n.sources()
		if n.Gathers && n.Operation == nil && n.Signature.MaxBatch > 1 && (from.rows < n.Signature.MaxBatch || from.free > own.free) {
			if meets == nil {
				meets = make([]int32, len(p.Nodes))
			}
			meets[i], from = math.MaxInt32, sources{rows: many}
			if own.free == 0 { // all tasks fit into one batch, whatever group they are of
				meets[i] = int32(n.Signature.MaxBatch) //nolint:gosec // max_batch_size is an int32
			}
		}
		from.add(own)
		before[i] = from
		for _, s := range n.Out {
			if s != None {
				writer[s] = int32(i) //nolint:gosec // at most maxSteps
			}
		}
	}
	return meets
}

// sources returns what the node is for those that read its outputs.
func (n *Node) sources() sources {
	switch {
	case n.Operation != nil && n.Operation.FanOut != nil: // it ends at another time in each group
		return sources{rows: 1}
	case n.Operation != nil:
		return sources{rows: many}
	}
	own := sources{rows: max(n.Signature.MaxBatch, 1)}
	for i := range n.Signature.Inputs {
		own.free = max(own.free, variable(&n.Signature.Inputs[i]))
	}
	return own
}

// variable counts the dims of a port that differ between requests.
func variable(port *config.Port) (n int) {
	if port.Unchecked {
		return math.MaxInt32
	}
	for _, d := range port.Dims.Dims() {
		if d < 0 {
			n++
		}
	}
	return n
}

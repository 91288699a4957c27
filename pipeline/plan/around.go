package plan

import "slices"

// Within returns the nodes that begin the fan-outs around node n, outermost first.
func (p *Plan) Within(n int) (list []int) {
	if len(p.RowSets) == 0 {
		return nil
	}
	for set := p.Nodes[n].Rows; set != 0; set = p.RowSets[set].Parent {
		if p.RowSets[set].FanOut {
			list = append(list, p.beginOf(set))
		}
	}
	slices.Reverse(list)
	return list
}

// beginOf returns the node of the demux that makes the rows of a set.
func (p *Plan) beginOf(set int32) int {
	return slices.IndexFunc(p.Nodes, func(n Node) bool {
		return n.Operation != nil && n.Operation.Demux != nil && p.SlotRows[n.Out[0]] == set
	})
}

// RouteOf returns the innermost route of which node n is the choice of an alternative, or is executed in one; nil for none.
func (p *Plan) RouteOf(n int) (route *Route, alternative int) {
	if op := p.Nodes[n].Operation; op != nil && op.Takes {
		return p.Routes[op.Route], int(op.Alternative)
	}
	for set := p.Nodes[n].Rows; set != 0; set = p.RowSets[set].Parent {
		s := &p.RowSets[set]
		if s.Route == nil {
			continue
		}
		at := slices.IndexFunc(p.Routes, func(r *Route) bool { return r.Route == s.Route })
		return p.Routes[at], s.Alternative
	}
	return nil, 0
}

// Dashed reports whether a node runs only beside the usual way of a request: a fallback, or a shadow.
func (n *Node) Dashed() bool {
	return n.FallbackOf != "" || n.Operation != nil && n.Operation.Shadow != nil
}

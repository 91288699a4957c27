package importer

import (
	"encoding/json"
	"slices"
	"strings"
)

// Demultiplexing. A node with demultiply_count divides its outputs by their first dimension, and the nodes that read them run for each item.
// gather_from_node puts the items together in front of a node; those of outputs of the pipeline are put together in any case. In an
// ensemble these are the parameters step.STEP.demux and ensemble.gather.

// gathered is a tensor that has the items of another one together.
type gathered struct{ to, from *wire }

// fans finds the demultiplexers that a node runs inside, outermost first, and gathers its inputs.
func (b *builder) fans(e *ensemble, n *ovmsNode) {
	if n.step == nil || n.placed {
		return
	}
	n.placed = true
	var within []*ovmsNode
	for i := range n.sources {
		src := n.sources[i]
		b.fans(e, src)
		if out := src.fan(); len(out) > len(within) {
			within = out
		}
	}
	if v := n.fields["gather_from_node"]; v.n != nil {
		name := b.text(v)
		at := slices.IndexFunc(within, func(d *ovmsNode) bool { return d.name == name })
		if at < 0 {
			b.fail(v, "the node '%s' is not after '%s', or that is no node with demultiply_count", n.name, name)
			return
		}
		within = within[:at]
	}
	n.within = within
	for i := range n.sources {
		n.step.in[i].wire = e.gather(n.step.in[i].wire, len(n.sources[i].fan())-len(within))
	}
}

// fan returns the demultiplexers that the outputs of a node are inside of.
func (n *ovmsNode) fan() []*ovmsNode {
	if n.step != nil && n.fields["demultiply_count"].n != nil {
		return append(slices.Clone(n.within), n)
	}
	return n.within
}

// gather returns a tensor with the items of another one together, once for each demultiplexer.
func (e *ensemble) gather(w *wire, times int) *wire {
	for range max(times, 0) {
		at := slices.IndexFunc(e.gathers, func(g gathered) bool { return g.from == w })
		if at < 0 {
			at = len(e.gathers)
			e.gathers = append(e.gathers, gathered{e.wire(w.name+"_all", port{name: w.name}, nil), w})
		}
		w = e.gathers[at].to
	}
	return w
}

// demuxParams returns the parameters that divide and gather tensors.
func (e *ensemble) demuxParams() (list [][2]string) {
	for i, s := range e.steps {
		if !s.demux {
			continue
		}
		var names []string
		for _, l := range s.out {
			names = append(names, l.wire.name)
		}
		list = append(list, [2]string{"step." + e.stepKey(i) + ".demux", strings.Join(names, ", ")})
	}
	if len(e.gathers) > 0 {
		m := map[string]map[string]string{}
		for _, g := range e.gathers {
			m[g.to.name] = map[string]string{"of": g.from.name}
		}
		text, _ := json.Marshal(m)
		list = append(list, [2]string{"ensemble.gather", string(text)})
	}
	return list
}

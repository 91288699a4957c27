package plan

import (
	"fmt"
	"strings"

	"github.com/tutti-server/tutti/core/config"
)

// String describes the rule, for example "batch dimension removed".
func (f BatchRule) String() string {
	switch f {
	case Strip:
		return "batch dimension removed"
	case Prepend:
		return "batch dimension added"
	default:
		return "as is"
	}
}

// Text prints the plan for people: a line per input, per step with its ports, and
// per output with the steps it needs.
func (p *Plan) Text() string {
	var b strings.Builder
	sig := p.Signature
	fmt.Fprintf(&b, "%s version %d: max batch size %d, %d steps, %d tensors\n", sig.Model, sig.Version, sig.MaxBatch, len(p.Nodes), p.Slots)
	for i, slot := range p.Inputs {
		port := &sig.Inputs[i]
		fmt.Fprintf(&b, "input %s %s%s\n", p.Names[slot], portType(sig, port), optionalMark(port))
	}
	for i := range p.Nodes {
		p.nodeText(&b, i)
	}
	for i, slot := range p.Outputs {
		port := &sig.Outputs[i]
		fmt.Fprintf(&b, "output %s %s from %s%s, needs steps%s\n", port.Name, portType(sig, port), p.Names[slot],
			ruleMark(ruleAt(p.OutputRules, i)), p.members(p.OutputNodes[i]))
	}
	p.copiesText(&b)
	return b.String()
}

func (p *Plan) nodeText(b *strings.Builder, i int) {
	n := &p.Nodes[i]
	fmt.Fprintf(b, "step %d %s: model %s version %d", i, n.Name, n.Model, n.Version)
	if at := n.deviceText(); at != "" {
		b.WriteString(" at " + at)
	}
	if n.Stream > 0 {
		outer := &p.Segments[n.Stream-1]
		fmt.Fprintf(b, ", for each answer of step %d", outer.First+outer.Producer)
	}
	if n.MaxInflight > 0 {
		fmt.Fprintf(b, ", at most %d requests at a time", n.MaxInflight)
	}
	b.WriteString("\n")
	for port, slot := range n.In {
		in := &n.Signature.Inputs[port]
		if slot == None {
			fmt.Fprintf(b, "  %s not mapped\n", in.Name)
			continue
		}
		fmt.Fprintf(b, "  %s <- %s %s%s%s%s\n", in.Name, p.Names[slot], portType(n.Signature, in), optionalMark(in), ruleMark(n.Rules[port]), modelMark(n.Signature, in))
	}
	for port, slot := range n.Out {
		out := &n.Signature.Outputs[port]
		if slot == None {
			fmt.Fprintf(b, "  %s not mapped\n", out.Name)
			continue
		}
		fmt.Fprintf(b, "  %s -> %s %s%s\n", out.Name, p.Names[slot], portType(n.Signature, out), modelMark(n.Signature, out))
	}
}

// portType is a port's data type and the shape a request carries.
func portType(sig *config.Signature, p *config.Port) string {
	return p.DType.String() + " " + p.FullDims(sig.MaxBatch).String()
}

// modelMark describes a tensor at the model where it differs.
func modelMark(sig *config.Signature, p *config.Port) string {
	switch {
	case p.Unbatched:
		return " (at the model: elements of the whole batch)"
	case p.Reshape != nil && sig.MaxBatch > 0:
		return " (at the model: " + p.Reshape.Dims.Prepend(-1).String() + ")"
	case p.Reshape != nil:
		return " (at the model: " + p.Reshape.Dims.String() + ")"
	default:
		return ""
	}
}

func optionalMark(p *config.Port) string {
	if p.Optional {
		return " optional"
	}
	return ""
}

func ruleMark(f BatchRule) string {
	if f == AsIs {
		return ""
	}
	return " (" + f.String() + ")"
}

// ruleAt returns fits[i], AsIs when there are none.
func ruleAt(fits []BatchRule, i int) BatchRule {
	if i < len(fits) {
		return fits[i]
	}
	return AsIs
}

func (p *Plan) members(set NodeSet) string {
	var b strings.Builder
	for i := range int32(len(p.Nodes)) {
		if set.Contains(i) {
			fmt.Fprintf(&b, " %d", i)
		}
	}
	return b.String()
}

// text prints the results of the passes so far.
func (c *compiler) text() string {
	var b strings.Builder
	for _, l := range c.levels {
		fmt.Fprintf(&b, "ensemble %s: max batch size %d\n", strings.Join(l.path(), "/"), l.sig.MaxBatch)
		for _, s := range l.steps {
			c.stepText(&b, s)
		}
	}
	for i, slot := range c.outputs {
		fmt.Fprintf(&b, "output %s from slot %d %s%s", c.levels[0].sig.Outputs[i].Name, slot, c.names[slot], ruleMark(ruleAt(c.outputRules, i)))
		if c.needs != nil {
			b.WriteString(", needs")
			for n, s := range c.leaves {
				if c.needs[i].Contains(int32(n)) {
					b.WriteString(" " + s.name)
				}
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

func (c *compiler) stepText(b *strings.Builder, s *step) {
	kind := "model"
	if s.inner != nil {
		kind = "ensemble"
	}
	fmt.Fprintf(b, "  step %s: %s %s version %d", s.name, kind, s.model, s.version)
	if s.stream > 0 {
		fmt.Fprintf(b, " in stream %d", s.stream)
	}
	b.WriteString("\n")
	for i := range s.sig.Inputs {
		in := &s.sig.Inputs[i]
		t, mapped := s.cfg.GetInputMap()[in.Name]
		if !mapped {
			fmt.Fprintf(b, "    %s not mapped\n", in.Name)
			continue
		}
		fmt.Fprintf(b, "    %s <- %s%s %s%s", in.Name, t, c.slotText(s.in, i), portType(s.sig, in), optionalMark(in))
		b.WriteString(ruleMark(ruleAt(s.rules, i)) + modelMark(s.sig, in) + "\n")
	}
	for i := range s.sig.Outputs {
		out := &s.sig.Outputs[i]
		if t, mapped := s.cfg.GetOutputMap()[out.Name]; mapped {
			fmt.Fprintf(b, "    %s -> %s%s %s%s\n", out.Name, t, c.slotText(s.out, i), portType(s.sig, out), modelMark(s.sig, out))
		} else {
			fmt.Fprintf(b, "    %s not mapped\n", out.Name)
		}
	}
}

// slotText is the slot of port i once bind has run.
func (c *compiler) slotText(slots []Slot, i int) string {
	if i >= len(slots) {
		return ""
	}
	if s := c.slot(slots[i]); s != None {
		return fmt.Sprintf(" (slot %d)", s)
	}
	return " (nothing)"
}

package plan

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/dominikbraun/graph"
	"github.com/dominikbraun/graph/draw"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
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

// Text prints the plan for people: a line per input, per step with its ports, and per output with the steps it needs.
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
	p.placesText(&b)
	return b.String()
}

func (p *Plan) nodeText(b *strings.Builder, i int) {
	n := &p.Nodes[i]
	switch n.Kind() {
	case "":
		fmt.Fprintf(b, "step %d %s: model %s version %d", i, n.Name, n.Model, n.Version)
		if n.Precision != "" {
			b.WriteString(" in " + n.Precision)
		}
	case "condition":
		fmt.Fprintf(b, "step %d %s: the rows %s", i, n.Name, n.Label())
	case "adapter":
		fmt.Fprintf(b, "step %d %s: adapts", i, n.Name)
	case "fallback":
		fmt.Fprintf(b, "step %d %s: what was written", i, n.Name)
	case "fan-out":
		fmt.Fprintf(b, "step %d %s: %s, at most %d items a request and %d in flight", i, n.Name, n.Label(), n.Operation.Demux.MaxItems, n.Operation.Demux.MaxInFlight)
	case "gather":
		fmt.Fprintf(b, "step %d %s: collects items", i, n.Name)
	case "route":
		fmt.Fprintf(b, "step %d %s: %s", i, n.Name, p.Routes[n.Operation.Route])
	case "shadow":
		fmt.Fprintf(b, "step %d %s: copies of %g%% of the requests to %s, at most %d at a time", i, n.Name, n.Operation.Shadow.Share*100, n.Operation.Shadow.Name, n.Operation.Shadow.InFlight)
	case "window", "stream join":
		fmt.Fprintf(b, "step %d %s: %s", i, n.Name, n.Label())
	default:
		fmt.Fprintf(b, "step %d %s: joins rows", i, n.Name)
	}
	if text := p.rowsText(n.Rows); text != "" && n.Kind() == "condition" {
		b.WriteString(", of those " + text)
	} else if text != "" {
		b.WriteString(", " + text)
	}
	if p.placed() {
		b.WriteString(" at " + p.sideText(i))
	}
	if n.Stream > 0 && int32(i) != p.Segments[n.Stream].Operator { //nolint:gosec // at most maxSteps
		b.WriteString(", for each " + p.streamText(n.Stream))
	}
	if n.MaxInflight > 0 {
		fmt.Fprintf(b, ", at most %d requests at a time", n.MaxInflight)
	}
	if n.Fault != nil && n.Fault.Text() != "" {
		b.WriteString(", " + n.Fault.Text())
	}
	if n.Params != nil {
		b.WriteString(", " + n.paramsText())
	}
	b.WriteString("\n")
	for port, slot := range n.In {
		if n.Constants != nil && n.Constants[port].Data != nil {
			fmt.Fprintf(b, "  %s is constant %s\n", n.Signature.Inputs[port].Name, portType(n.Signature, &n.Signature.Inputs[port]))
			continue
		}
		portText(b, "  ", "<-", p.name(slot), n.Signature, &n.Signature.Inputs[port], n.Rules[port])
	}
	for port, slot := range n.Out {
		portText(b, "  ", "->", p.name(slot), n.Signature, &n.Signature.Outputs[port], AsIs)
	}
}

// name returns the name of a slot's tensor, nothing for None.
func (p *Plan) name(s Slot) string {
	if s == None {
		return ""
	}
	return p.Names[s]
}

// portText prints a line about a port of a step. tensor is empty when the port is not mapped.
func portText(b *strings.Builder, indent, arrow, tensor string, sig *config.Signature, port *config.Port, rule BatchRule) {
	if tensor == "" {
		fmt.Fprintf(b, "%s%s not mapped\n", indent, port.Name)
		return
	}
	fmt.Fprintf(b, "%s%s %s %s %s%s%s%s\n", indent, port.Name, arrow, tensor, portType(sig, port), optionalMark(port), ruleMark(rule), modelMark(sig, port))
}

// portType is a port's data type and the shape a request carries.
func portType(sig *config.Signature, p *config.Port) string {
	return p.DType.String() + " " + p.FullDims(sig.MaxBatch).String()
}

// modelMark describes a tensor at the model where it differs.
func modelMark(sig *config.Signature, p *config.Port) string {
	if p.Unbatched {
		return " (at the model: elements of the whole batch)"
	}
	if p.Reshape == nil {
		return ""
	}
	dims := p.Reshape.Dims
	if sig.MaxBatch > 0 {
		dims = dims.Prepend(-1)
	}
	return " (at the model: " + dims.String() + ")"
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
	switch {
	case s.op != nil:
		fmt.Fprintf(b, "  operation %s", s.name)
	case s.inner != nil:
		fmt.Fprintf(b, "  step %s: ensemble %s version %d", s.name, s.model, s.version)
	default:
		fmt.Fprintf(b, "  step %s: model %s version %d", s.name, s.model, s.version)
	}
	if c.sets != nil {
		fmt.Fprintf(b, " for row set %d", s.set)
	}
	if s.stream > 0 {
		fmt.Fprintf(b, " in stream %d", s.stream)
	}
	b.WriteString("\n")
	for i := range s.sig.Inputs {
		in := &s.sig.Inputs[i]
		portText(b, "    ", "<-", c.tensorText(s.cfg.GetInputMap()[in.Name], s.in, i), s.sig, in, ruleAt(s.rules, i))
	}
	for i := range s.sig.Outputs {
		out := &s.sig.Outputs[i]
		portText(b, "    ", "->", c.tensorText(s.cfg.GetOutputMap()[out.Name], s.out, i), s.sig, out, AsIs)
	}
}

// tensorText is the name of the tensor that port i is mapped to, with its slot once bind has run; nothing for none.
func (c *compiler) tensorText(name string, slots []Slot, i int) string {
	if name == "" || i >= len(slots) {
		return name
	}
	if s := c.slot(slots[i]); s != None {
		return fmt.Sprintf("%s (slot %d)", name, s)
	}
	return name + " (nothing)"
}

// DOT writes the plan in Graphviz' language.
func (p *Plan) DOT(w io.Writer) error {
	g := graph.New(graph.StringHash, graph.Directed())
	if err := p.drawing(g); err != nil {
		return status.Errorf(status.Internal, "the graph of '%s' cannot be drawn: %w", p.Signature.Model, err)
	}
	var b bytes.Buffer
	if err := draw.DOT(g, &b, draw.GraphAttribute("rankdir", "LR")); err != nil {
		return status.Errorf(status.Internal, "the graph of '%s' cannot be drawn: %w", p.Signature.Model, err)
	}
	return sortStatements(w, b.String())
}

// sortStatements writes the drawing with its statements, a line each, in one order: the library has that of a map.
func sortStatements(w io.Writer, text string) error {
	var head, body []string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.TrimSpace(line) == "" || line == "}":
		case strings.HasPrefix(line, "\t\""):
			body = append(body, line)
		default:
			head = append(head, line)
		}
	}
	slices.Sort(body)
	_, err := io.WriteString(w, strings.Join(append(append(head, body...), "}\n"), "\n"))
	return err
}

// drawing enters inputs, steps and outputs into g. Two tensors on one way share an edge.
func (p *Plan) drawing(g graph.Graph[string, string]) error {
	labels := map[[2]string][]string{}
	from := make([]string, p.Slots)
	var ends [][2]string
	connect := func(slot Slot, to, label string) {
		way := [2]string{from[slot], to}
		if labels[way] == nil {
			ends = append(ends, way)
		}
		labels[way] = append(labels[way], label)
	}
	for i, slot := range p.Inputs {
		from[slot] = "input " + quoteDOT(p.Signature.Inputs[i].Name)
		if err := vertex(g, from[slot], quoteDOT(p.Signature.Inputs[i].Name), "ellipse"); err != nil {
			return err
		}
	}
	for i := range p.Nodes {
		n := &p.Nodes[i]
		name := fmt.Sprintf("step %d", i)
		label, shape := quoteDOT(n.Label()), "box"
		if p.placed() {
			label += `\n` + p.atText(i)
		}
		if n.Operation != nil {
			shape = "hexagon"
		}
		if err := vertex(g, name, label, shape); err != nil {
			return err
		}
		for _, slot := range n.Waits {
			connect(slot, name, p.WaitLabel(slot))
		}
		for port, slot := range n.In {
			if slot != None {
				connect(slot, name, quoteDOT(p.Names[slot])+`\n`+portType(n.Signature, &n.Signature.Inputs[port])+p.copied(`\n`, slot, n.location()))
			}
		}
		for _, slot := range n.Out {
			if slot != None {
				from[slot] = name
			}
		}
		if n.Fault != nil && n.Fault.Waits != None {
			from[n.Fault.Waits] = name
		}
	}
	for i, slot := range p.Outputs {
		name := "output " + quoteDOT(p.Signature.Outputs[i].Name)
		if err := vertex(g, name, quoteDOT(p.Signature.Outputs[i].Name), "ellipse"); err != nil {
			return err
		}
		connect(slot, name, quoteDOT(p.Names[slot])+`\n`+portType(p.Signature, &p.Signature.Outputs[i])+p.copied(`\n`, slot, Location{}))
	}
	for _, way := range ends {
		if err := g.AddEdge(way[0], way[1], graph.EdgeAttribute("label", strings.Join(labels[way], `\n`))); err != nil {
			return err
		}
	}
	return nil
}

func vertex(g graph.Graph[string, string], id, label, shape string) error {
	err := g.AddVertex(id, graph.VertexAttribute("label", label), graph.VertexAttribute("shape", shape))
	if errors.Is(err, graph.ErrVertexAlreadyExists) {
		return nil
	}
	return err
}

// quoteDOT escapes a name for a quoted string on one line.
func quoteDOT(s string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", " ", "\r", " ").Replace(s)
}

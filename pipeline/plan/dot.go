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

	"github.com/tutti-server/tutti/core/status"
)

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

// sortStatements writes the drawing with its statements, a line each, in one order:
// the library has the random order of a map.
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
		label := quoteDOT(n.Name)
		if at := n.deviceText(); at != "" {
			label += `\n` + at
		}
		if err := vertex(g, name, label, "box"); err != nil {
			return err
		}
		for port, slot := range n.In {
			if slot != None {
				connect(slot, name, quoteDOT(p.Names[slot])+`\n`+portType(n.Signature, &n.Signature.Inputs[port])+p.copiedDOT(slot, n.location()))
			}
		}
		for _, slot := range n.Out {
			if slot != None {
				from[slot] = name
			}
		}
	}
	for i, slot := range p.Outputs {
		name := "output " + quoteDOT(p.Signature.Outputs[i].Name)
		if err := vertex(g, name, quoteDOT(p.Signature.Outputs[i].Name), "ellipse"); err != nil {
			return err
		}
		connect(slot, name, quoteDOT(p.Names[slot])+`\n`+portType(p.Signature, &p.Signature.Outputs[i])+p.copiedDOT(slot, Location{}))
	}
	for _, way := range ends {
		if err := g.AddEdge(way[0], way[1], graph.EdgeAttribute("label", strings.Join(labels[way], `\n`))); err != nil {
			return err
		}
	}
	return nil
}

// copiedDOT is a line more for the label of a tensor that is copied.
func (p *Plan) copiedDOT(s Slot, at Location) string {
	if text := p.copied(s, at); text != "" {
		return `\n` + text
	}
	return ""
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

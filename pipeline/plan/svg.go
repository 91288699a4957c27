package plan

import (
	"cmp"
	"fmt"
	"html"
	"io"
	"slices"
	"strings"
)

// The measures of a drawing, in pixels. Texts are in a monospaced face, so that
// their width is known.
const (
	charWidth  = 7.3
	boxHeight  = 34
	portHeight = 30
	rowGap     = 26
	colGap     = 36
	margin     = 16
)

// shape is a thing drawn: an input, a step, an output, or a bend where an edge
// passes a column of others.
type shape struct {
	text, class string
	col         int
	in, out     []*edge
	x, y, w, h  float64
	order       float64 // of its column, by what leads to it
}

// edge is a tensor on its way from shape to shape, through bends.
type edge struct {
	label string
	path  []*shape
}

// drawing is a plan as columns of shapes, left to right.
type drawing struct {
	cols  [][]*shape
	edges []*edge
}

// SVG draws the plan: its inputs on the left, each step to the right of what it
// needs, its outputs on the right.
func (p *Plan) SVG(w io.Writer) error {
	d := &drawing{}
	d.fill(p)
	d.bend()
	width, height := d.place()
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" role="img">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, "<title>%s</title>\n", html.EscapeString(p.Signature.Model))
	b.WriteString(style)
	fmt.Fprintf(&b, `<rect class="paper" width="%.0f" height="%.0f" rx="8"/>`+"\n", width, height)
	for _, e := range d.edges {
		e.draw(&b)
	}
	for _, col := range d.cols {
		for _, s := range col {
			s.draw(&b)
		}
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

const style = `<style>
text { font: 12px ui-monospace, Menlo, Consolas, monospace; fill: #1f2328; }
.label { font-size: 10px; fill: #59636e; }
.paper { fill: #ffffff; }
.port { fill: #eef3f8; stroke: #8fa3b8; }
.step { fill: #fff4d6; stroke: #c29a2f; }
path { fill: none; stroke: #8c959f; stroke-width: 1.4; }
</style>
`

// fill makes the shapes and edges of p.
func (d *drawing) fill(p *Plan) {
	from := make([]*shape, p.Slots)
	last := 0
	for i, slot := range p.Inputs {
		from[slot] = d.add(p.Signature.Inputs[i].Name, "port", 0)
	}
	for i := range p.Nodes {
		n := &p.Nodes[i]
		col := 1
		for _, slot := range n.In {
			if slot != None && from[slot] != nil {
				col = max(col, from[slot].col+1)
			}
		}
		s := d.add(n.Name, "step", col)
		last = max(last, col)
		for port, slot := range n.In {
			if slot != None {
				d.connect(from[slot], s, p.Names[slot]+" "+portType(n.Signature, &n.Signature.Inputs[port]))
			}
		}
		for _, slot := range n.Out {
			if slot != None {
				from[slot] = s
			}
		}
	}
	for i, slot := range p.Outputs {
		port := &p.Signature.Outputs[i]
		d.connect(from[slot], d.add(port.Name, "port", last+1), p.Names[slot]+" "+portType(p.Signature, port))
	}
}

func (d *drawing) add(text, class string, col int) *shape {
	s := &shape{text: text, class: class, col: col, w: float64(len([]rune(text)))*charWidth + 2*margin}
	for len(d.cols) <= col {
		d.cols = append(d.cols, nil)
	}
	d.cols[col] = append(d.cols[col], s)
	return s
}

func (d *drawing) connect(from, to *shape, label string) {
	if from == nil {
		return
	}
	e := &edge{label: label, path: []*shape{from, to}}
	from.out, to.in = append(from.out, e), append(to.in, e)
	d.edges = append(d.edges, e)
}

// bend gives every edge a place in each column that it passes.
func (d *drawing) bend() {
	for _, e := range d.edges {
		from, to := e.path[0], e.path[1]
		e.path = []*shape{from}
		for col := from.col + 1; col < to.col; col++ {
			s := d.add("", "bend", col)
			s.in, s.out = []*edge{e}, []*edge{e}
			e.path = append(e.path, s)
		}
		e.path = append(e.path, to)
	}
}

// place sets where everything is and returns the size of the whole.
func (d *drawing) place() (width, height float64) {
	d.sort()
	x := float64(margin)
	heights := make([]float64, len(d.cols))
	for c, col := range d.cols {
		x += d.labelRoom(c)
		w := 0.0
		for _, s := range col {
			w = max(w, s.w)
			s.h = max(boxHeight, float64(max(len(s.in), len(s.out)))*portHeight)
			s.x, s.y = x, heights[c]
			heights[c] += s.h + rowGap
		}
		for _, s := range col {
			s.w = w
		}
		heights[c] -= rowGap
		x += w
		height = max(height, heights[c])
	}
	for c, col := range d.cols {
		for _, s := range col {
			s.y += margin + (height-heights[c])/2
		}
	}
	d.untangle()
	return x + margin, height + 2*margin
}

// untangle orders the edges at each shape by where they come from and go to, so that
// those of one shape do not cross.
func (d *drawing) untangle() {
	for _, col := range d.cols {
		for _, s := range col {
			slices.SortStableFunc(s.in, func(a, b *edge) int { return cmp.Compare(a.beside(s, -1).y, b.beside(s, -1).y) })
			slices.SortStableFunc(s.out, func(a, b *edge) int { return cmp.Compare(a.beside(s, 1).y, b.beside(s, 1).y) })
		}
	}
}

// beside returns what comes on the path by steps after s.
func (e *edge) beside(s *shape, by int) *shape { return e.path[slices.Index(e.path, s)+by] }

// sort orders each column by where its edges come from.
func (d *drawing) sort() {
	for _, col := range d.cols {
		for _, s := range col {
			for _, e := range s.in {
				s.order += e.beside(s, -1).order / float64(len(s.in))
			}
		}
		slices.SortStableFunc(col, func(a, b *shape) int { return cmp.Compare(a.order, b.order) })
		for i, s := range col {
			s.order = float64(i) - float64(len(col)-1)/2
		}
	}
}

// labelRoom is the width before column c: room for the labels of the edges that end there.
func (d *drawing) labelRoom(c int) float64 {
	if c == 0 {
		return 0
	}
	room := 0.0
	for _, e := range d.edges {
		if e.path[len(e.path)-1].col == c {
			room = max(room, float64(len([]rune(e.label)))*charWidth*10/12)
		}
	}
	return room + colGap
}

// portY is the height at which edge e, one of list, meets s.
func (s *shape) portY(list []*edge, e *edge) float64 {
	return s.y + s.h*(float64(slices.Index(list, e))+0.5)/float64(len(list))
}

func (e *edge) draw(b *strings.Builder) {
	var x, y float64
	for i, s := range e.path {
		if i > 0 {
			ty := s.portY(s.in, e)
			fmt.Fprintf(b, `<path d="M%.1f %.1f C%.1f %.1f %.1f %.1f %.1f %.1f`, x, y, x+colGap, y, s.x-colGap, ty, s.x, ty)
			if s.class == "bend" {
				fmt.Fprintf(b, ` H%.1f`, s.x+s.w)
			}
			b.WriteString("\"/>\n")
		}
		x, y = s.x+s.w, s.portY(s.out, e)
		if i == len(e.path)-1 {
			fmt.Fprintf(b, `<text class="label" x="%.1f" y="%.1f" text-anchor="end">%s</text>`+"\n", s.x-6, s.portY(s.in, e)-5, html.EscapeString(e.label))
		}
	}
}

func (s *shape) draw(b *strings.Builder) {
	if s.class == "bend" {
		return
	}
	radius := 4
	if s.class == "port" {
		radius = boxHeight / 2
	}
	fmt.Fprintf(b, `<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="%d"/>`+"\n", s.class, s.x, s.y, s.w, s.h, radius)
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`+"\n", s.x+s.w/2, s.y+s.h/2+4, html.EscapeString(s.text))
}

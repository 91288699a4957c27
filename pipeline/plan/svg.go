package plan

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/status"
)

// svgStyle gives the image its own background, so that it reads the same on a light and on a dark page.
const svgStyle = `text{font-family:ui-sans-serif,system-ui,"Segoe UI",Helvetica,Arial,"DejaVu Sans",sans-serif;font-size:12px}
.ground{fill:#f6f8fb;stroke:#d5dbe3}
.title{font-size:13px;font-weight:600;fill:#172033;text-anchor:middle}
.caption{font-size:11px;fill:#5b6780;text-anchor:middle}
.step{fill:#ffffff;stroke:#4c6ef5;stroke-width:1.5}
.input{fill:#e6f6ec;stroke:#2f9e5b;stroke-width:1.5}
.output{fill:#fdf1e0;stroke:#d9822b;stroke-width:1.5}
.line{fill:none;stroke:#8391a7;stroke-width:1.6}
.name{fill:#172033;font-weight:500}
.kind{font-size:11px;fill:#5b6780}
`

// choiceStyle is for the nodes of conditions.
const choiceStyle = ".choice{fill:#f3eefc;stroke:#7c4dcc;stroke-width:1.5}\n"

// maxDrawn bounds the steps of a drawing: a line has a point in every column, so they may grow with the square.
const maxDrawn = 512

// SVG draws the plan from left to right: inputs, steps, outputs, and the tensors between them with name, data type and
// shape. kind returns a model's kind in a word or two, for example "onnx" or "tokenize"; it may be nil.
func (p *Plan) SVG(w io.Writer, kind func(model string) string) error {
	if len(p.Nodes) > maxDrawn {
		return status.Errorf(status.Unsupported, "'%s' has %d steps, expected at most %d in an image", p.Signature.Model, len(p.Nodes), maxDrawn)
	}
	l := newLayout(p, kind)
	style := svgStyle
	if len(p.RowSets) > 0 {
		style += choiceStyle
	}
	if len(l.framed) > 0 {
		style += frameStyle
	}
	if slices.ContainsFunc(p.Nodes, func(n Node) bool { return n.Dashed() }) {
		style += dashedStyle
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f" role="img">`+"\n", l.w, l.h, l.w, l.h)
	fmt.Fprintf(&b, "<title>%s</title>\n<style>%s</style>\n", escape(p.Signature.Model), style)
	b.WriteString(`<defs><marker id="tip" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="7" markerHeight="7" orient="auto">` +
		`<path d="M0,0.5 L8,4 L0,7.5 z" fill="#8391a7"/></marker></defs>` + "\n")
	fmt.Fprintf(&b, `<rect class="ground" x="0.5" y="0.5" width="%.0f" height="%.0f" rx="10"/>`+"\n", l.w-1, l.h-1)
	for _, f := range slices.Backward(l.framed) { // the outer ones below
		f.draw(&b, l)
	}
	for _, li := range l.lines {
		l.drawLine(&b, li)
	}
	for _, g := range l.glyphs {
		g.draw(&b)
	}
	b.WriteString("</svg>\n")
	_, err := w.Write(b.Bytes())
	return err
}

// Sizes of a drawing, in pixels.
const (
	margin    = 28
	rowGap    = 26 // between the glyphs of a column
	lineStep  = 40 // between two outputs of a glyph
	curveSpan = 46 // horizontal space of a curve
	narrow    = 6.7
	broad     = 8.6 // a bold letter
)

// glyph is a drawn thing: an input, step or output, or the point where a line passes a column.
type glyph struct {
	kind           glyphKind
	title, caption string
	node           int // of a step or an operation
	dashed         bool
	layer          int
	x, y, w, h     float64 // y is the vertical centre
	outs           []int   // outgoing lines, top to bottom
	ins            []*end
	links          []link
}

// link is one connection of a glyph, on either side.
type link struct {
	line *line
	end  *end
}

type glyphKind uint8

const (
	inputGlyph glyphKind = iota
	stepGlyph
	choiceGlyph
	decisionGlyph
	outputGlyph
	passGlyph
)

// line is one tensor on its way out of a glyph to the next column.
type line struct {
	from       *glyph
	port       int // of from.outs
	name, kind string
	to         []*end
}

// end is where a line arrives.
type end struct {
	to     *glyph
	port   int // of to.ins
	dashed bool
}

// portY returns the height of port i of n on g.
func (g *glyph) portY(i, n int) float64 { return g.y - g.h/2 + g.h*(float64(i)+0.5)/float64(n) }

// layout places everything: columns by the longest way from the inputs, rows so that lines are short and cross little.
type layout struct {
	glyphs  []*glyph
	lines   []*line
	columns [][]*glyph
	framed  []*frame
	labels  []float64 // per column: the space its labels need on its right
	bySlot  []int     // per slot: its line out of its writer
	w, h    float64
}

func (l *layout) add(g glyph) *glyph {
	l.glyphs = append(l.glyphs, &g)
	return &g
}

func newLayout(p *Plan, kind func(model string) string) *layout {
	l := &layout{bySlot: make([]int, p.Slots)}
	for i, slot := range p.Inputs {
		port := &p.Signature.Inputs[i]
		caption := "input"
		if port.Optional {
			caption = "optional input"
		}
		g := l.add(glyph{kind: inputGlyph, title: port.Name, caption: caption})
		l.out(g, slot, "", p.lineType(slot, portType(p.Signature, port)))
	}
	last := 0
	for i := range p.Nodes {
		last = max(last, l.node(p, i, kind))
	}
	for i, slot := range p.Outputs {
		port := &p.Signature.Outputs[i]
		g := l.add(glyph{kind: outputGlyph, title: port.Name, caption: "output", layer: last + 1})
		l.connect(slot, g)
		if from := l.lines[l.bySlot[slot]]; from.name == port.Name && len(from.to) == 1 {
			from.name = "" // the output says it
		}
	}
	l.passes()
	l.frames(p)
	l.place()
	l.clear()
	l.frame()
	return l
}

// node adds step i and returns its layer.
func (l *layout) node(p *Plan, i int, kind func(string) string) int {
	n := &p.Nodes[i]
	g := l.add(glyph{kind: stepGlyph, title: n.Label(), node: i, dashed: n.Dashed(), layer: 1})
	switch {
	case n.Kind() == "condition":
		g.kind, g.caption = decisionGlyph, n.Kind()
	case n.Kind() == "route":
		r := p.Routes[n.Operation.Route]
		g.kind, g.caption = decisionGlyph, fmt.Sprintf("%s, %.4g%%", r.Kind, r.Alternatives[n.Operation.Alternative].Share*100)
	case n.Operation != nil:
		g.kind, g.caption = choiceGlyph, n.Kind()
	case kind != nil:
		g.caption = kind(n.Model)
	}
	if p.placed() {
		g.caption = strings.TrimPrefix(g.caption+", "+p.atText(i), ", ")
	}
	for _, slot := range n.In {
		if slot != None {
			g.layer = max(g.layer, l.lines[l.bySlot[slot]].from.layer+1)
			l.connect(slot, g)
		}
	}
	for _, slot := range n.Waits {
		g.layer = max(g.layer, l.lines[l.bySlot[slot]].from.layer+1)
		l.connect(slot, g)
	}
	for port, slot := range n.Out {
		if slot != None && (n.Kind() == "condition" || n.Kind() == "route") {
			l.out(g, slot, "rows", "")
		} else if slot != None {
			l.out(g, slot, p.Names[slot], p.lineType(slot, portType(n.Signature, &n.Signature.Outputs[port])))
		}
	}
	if n.Fault != nil && n.Fault.Waits != None {
		l.out(g, n.Fault.Waits, p.WaitLabel(n.Fault.Waits), "")
	}
	return g.layer
}

// lineType returns the text below a tensor's name.
func (p *Plan) lineType(s Slot, kind string) string {
	list := []string{kind}
	if p.placed() {
		at, _ := p.PlaceOf(s)
		list = append(list, at)
	}
	for _, m := range p.Copies {
		if m.Slot == s {
			list = append(list, p.copied("", s, m.To))
		}
	}
	return strings.Join(list, ", ")
}

func (l *layout) out(g *glyph, slot Slot, name, kind string) {
	l.bySlot[slot] = len(l.lines)
	g.outs = append(g.outs, len(l.lines))
	l.lines = append(l.lines, &line{from: g, port: len(g.outs) - 1, name: name, kind: kind})
}

func (l *layout) connect(slot Slot, g *glyph) {
	from := l.lines[l.bySlot[slot]]
	e := &end{to: g, port: len(g.ins), dashed: g.dashed || from.from.dashed}
	g.ins = append(g.ins, e)
	from.to = append(from.to, e)
}

// passes cuts lines that span several columns into one piece per column.
func (l *layout) passes() {
	for i := 0; i < len(l.lines); i++ { // grows on the way
		li := l.lines[i]
		isFar := func(e *end) bool { return e.to.layer > li.from.layer+1 }
		far := slices.DeleteFunc(slices.Clone(li.to), func(e *end) bool { return !isFar(e) })
		if len(far) == 0 {
			continue
		}
		dashed := !slices.ContainsFunc(far, func(e *end) bool { return !e.dashed })
		e := &end{to: l.add(glyph{kind: passGlyph, layer: li.from.layer + 1, outs: []int{len(l.lines)}}), dashed: dashed}
		e.to.ins = []*end{e}
		l.lines = append(l.lines, &line{from: e.to, to: far})
		li.to = append(slices.DeleteFunc(li.to, isFar), e)
	}
}

func (l *layout) place() {
	for _, g := range l.glyphs {
		for len(l.columns) <= g.layer {
			l.columns = append(l.columns, nil)
		}
		l.columns[g.layer] = append(l.columns[g.layer], g)
		g.size()
	}
	for _, column := range l.columns {
		stack(column)
	}
	l.labels = make([]float64, len(l.columns))
	for _, li := range l.lines {
		at := &l.labels[li.from.layer]
		*at = max(*at, 14+narrow*float64(max(len([]rune(li.name)), len([]rune(li.kind)))))
		for _, e := range li.to {
			li.from.links = append(li.from.links, link{li, e})
			e.to.links = append(e.to.links, link{li, e})
		}
	}
	const sweeps = 8
	for i := range sweeps {
		for c := range l.columns {
			if i%2 == 1 {
				c = len(l.columns) - 1 - c
			}
			align(l.columns[c])
		}
	}
}

func (g *glyph) size() {
	if g.kind == passGlyph {
		g.h = 8
		return
	}
	g.w = 28 + max(broad*float64(len([]rune(g.title))), narrow*float64(len([]rune(g.caption))))
	g.h = 46
	if g.kind == decisionGlyph {
		g.w += slant
	}
	if g.kind == stepGlyph {
		g.h = max(g.h, lineStep*float64(len(g.outs)), 16*float64(len(g.ins)))
	}
}

// stack puts a column's glyphs below each other, around height 0.
func stack(column []*glyph) {
	total := -float64(rowGap)
	for _, g := range column {
		total += g.h + rowGap
	}
	y := -total / 2
	for _, g := range column {
		g.y = y + g.h/2
		y += g.h + rowGap
	}
}

// align moves a column's glyphs to the middle of their neighbours, in that order, and apart where they then overlap.
func align(column []*glyph) {
	want := make(map[*glyph]float64, len(column))
	for _, g := range column {
		want[g] = g.pull()
	}
	slices.SortStableFunc(column, func(a, b *glyph) int { return cmp.Compare(want[a], want[b]) })
	middle := 0.0
	for i, g := range column {
		g.y = want[g]
		middle += want[g]
		if i > 0 {
			above := column[i-1]
			g.y = max(g.y, above.y+above.h/2+rowGap+g.h/2)
		}
	}
	shift := middle
	for _, g := range column {
		shift -= g.y
	}
	for _, g := range column {
		g.y += shift / float64(len(column))
	}
}

// pull returns the mean height of the far ends of g's lines.
func (g *glyph) pull() float64 {
	if len(g.links) == 0 {
		return g.y
	}
	sum := 0.0
	for _, k := range g.links {
		if k.end.to == g {
			sum += k.line.from.portY(k.line.port, len(k.line.from.outs))
		} else {
			sum += k.end.to.portY(k.end.port, len(k.end.to.ins))
		}
	}
	return sum / float64(len(g.links))
}

// frame sets the columns' places and the size of the whole, and sorts the lines at a glyph by where they come from.
func (l *layout) frame() {
	top, bottom, x := 0.0, 0.0, float64(margin)
	for c, column := range l.columns {
		width := 0.0
		for _, g := range column {
			width = max(width, g.w)
			top, bottom = min(top, g.y-g.h/2), max(bottom, g.y+g.h/2)
		}
		for _, g := range column {
			g.x = x
			if g.kind == passGlyph || g.kind == stepGlyph {
				g.w = width // one width a column looks calmer
			}
		}
		x += width
		if c < len(l.columns)-1 {
			x += l.labels[c] + curveSpan
		}
	}
	for _, f := range l.framed {
		top, bottom = min(top, f.top), max(bottom, f.bottom)
	}
	for _, g := range l.glyphs {
		g.y += margin - top
	}
	for _, f := range l.framed {
		f.top, f.bottom = f.top+margin-top, f.bottom+margin-top
	}
	l.w, l.h = x+margin, bottom-top+2*margin
	source := map[*end]float64{}
	for _, li := range l.lines {
		for _, e := range li.to {
			source[e] = li.from.portY(li.port, len(li.from.outs))
		}
	}
	for _, g := range l.glyphs {
		slices.SortStableFunc(g.ins, func(a, b *end) int { return cmp.Compare(source[a], source[b]) })
		for i, e := range g.ins {
			e.port = i
		}
	}
}

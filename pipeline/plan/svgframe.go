package plan

import (
	"bytes"
	"fmt"
	"slices"
)

// frameStyle is for the frames of fan-outs, dashedStyle for what runs beside the usual way of a request.
const (
	frameStyle  = ".frame{fill:#7c4dcc;fill-opacity:0.06;stroke:#7c4dcc;stroke-opacity:0.5}\n.each{font-size:11px;fill:#6a3fb5}\n"
	dashedStyle = ".dashed{stroke-dasharray:6 4}\n"
)

// Space in a frame around its steps, in pixels. Its text is above them.
const (
	frameSide = 14
	frameTop  = 26
	frameFoot = 12
)

// frame is drawn around the steps inside of a fan-out.
type frame struct {
	begin       int // the node of the demux
	text        string
	depth       int
	members     []*glyph // those of inner fan-outs, too
	inner       []*frame
	from, to    int     // layers
	top, bottom float64 // with the space around
}

// frames finds the steps inside of each fan-out, those of inner fan-outs first.
func (l *layout) frames(p *Plan) {
	for _, g := range l.glyphs {
		if g.kind != stepGlyph && g.kind != choiceGlyph && g.kind != decisionGlyph {
			continue
		}
		for depth, begin := range p.Within(g.node) {
			at := slices.IndexFunc(l.framed, func(f *frame) bool { return f.begin == begin })
			if at < 0 {
				at = len(l.framed)
				l.framed = append(l.framed, &frame{begin: begin, text: "for " + p.Nodes[begin].Label(), depth: depth, from: g.layer, to: g.layer})
			}
			f := l.framed[at]
			f.from, f.to, f.members = min(f.from, g.layer), max(f.to, g.layer), append(f.members, g)
		}
	}
	slices.SortStableFunc(l.framed, func(a, b *frame) int { return b.depth - a.depth })
	for _, f := range l.framed {
		for _, in := range l.framed {
			if in.depth == f.depth+1 && slices.Contains(f.members, in.members[0]) {
				f.inner = append(f.inner, in)
			}
		}
	}
}

// clear moves the glyphs that are not inside of a fan-out, but beside its steps, out of its frame.
func (l *layout) clear() {
	for _, f := range l.framed {
		f.measure()
		middle := (f.top + f.bottom) / 2
		for _, column := range l.columns[f.from : f.to+1] {
			var above, below []*glyph
			for _, g := range column {
				switch {
				case g.kind == passGlyph || slices.Contains(f.members, g):
				case g.y < middle:
					above = append(above, g)
				default:
					below = append(below, g)
				}
			}
			limit := f.bottom + rowGap/2
			for _, g := range below {
				g.y = max(g.y, limit+g.h/2)
				limit = g.y + g.h/2 + rowGap
			}
			limit = f.top - rowGap/2
			for _, g := range slices.Backward(above) {
				g.y = min(g.y, limit-g.h/2)
				limit = g.y - g.h/2 - rowGap
			}
		}
	}
	for _, f := range l.framed { // members may have moved out of another frame
		f.measure()
	}
}

// measure finds the height of a frame. Inner frames must be measured.
func (f *frame) measure() {
	f.top, f.bottom = f.members[0].y, f.members[0].y
	for _, g := range f.members {
		f.top, f.bottom = min(f.top, g.y-g.h/2), max(f.bottom, g.y+g.h/2)
	}
	for _, in := range f.inner {
		f.top, f.bottom = min(f.top, in.top), max(f.bottom, in.bottom)
	}
	f.top, f.bottom = f.top-frameTop, f.bottom+frameFoot
}

// draw draws a frame from its first column to the labels behind its last one.
func (f *frame) draw(b *bytes.Buffer, l *layout) {
	deeper := 0.0
	for _, in := range f.inner {
		deeper = max(deeper, 1+in.deep())
	}
	left := l.columns[f.from][0].x - frameSide*(1+deeper/2)
	right := left
	for _, g := range f.members {
		right = max(right, g.x+g.w+l.labels[g.layer])
	}
	right += frameSide * deeper / 2
	fmt.Fprintf(b, `<rect class="frame" x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="12"/>`+"\n", left, f.top, right-left, f.bottom-f.top)
	fmt.Fprintf(b, `<text class="each" x="%.1f" y="%.1f">%s</text>`+"\n", left+12, f.top+17, escape(f.text))
}

// deep counts the fan-outs inside of each other.
func (f *frame) deep() (n float64) {
	for _, in := range f.inner {
		n = max(n, 1+in.deep())
	}
	return n
}

// slant is how far the tips of a decision stand out.
const slant = 16

// portX returns where a line meets the side of g at height y: the sides of decisions are tips.
func (g *glyph) portX(y float64, right bool) float64 {
	in := 0.0
	if g.kind == decisionGlyph {
		in = slant * min(1, max(y-g.y, g.y-y)/(g.h/2))
	}
	if right {
		return g.x + g.w - in
	}
	return g.x + in
}

// decision draws a condition or an alternative: a box with tips.
func (g *glyph) decision(b *bytes.Buffer) {
	x, y, h := g.x, g.y, g.h/2
	fmt.Fprintf(b, `<path class="choice" d="M%.1f,%.1f L%.1f,%.1f H%.1f L%.1f,%.1f L%.1f,%.1f H%.1f z"/>`+"\n",
		x, y, x+slant, y-h, x+g.w-slant, x+g.w, y, x+g.w-slant, y+h, x+slant)
}

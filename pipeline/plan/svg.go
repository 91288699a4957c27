package plan

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"

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

// maxDrawn bounds the steps of a drawing: a line has a point in every column, so they may grow with the square.
const maxDrawn = 512

// SVG draws the plan from left to right: inputs, steps, outputs, and the tensors between them with name, data type and
// shape. kind returns a model's kind in a word or two, for example "onnx" or "tokenize"; it may be nil.
func (p *Plan) SVG(w io.Writer, kind func(model string) string) error {
	if len(p.Nodes) > maxDrawn {
		return status.Errorf(status.Unsupported, "'%s' has %d steps, expected at most %d in a picture", p.Signature.Model, len(p.Nodes), maxDrawn)
	}
	l := newLayout(p, kind)
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f" role="img">`+"\n", l.w, l.h, l.w, l.h)
	fmt.Fprintf(&b, "<title>%s</title>\n<style>%s</style>\n", escape(p.Signature.Model), svgStyle)
	b.WriteString(`<defs><marker id="tip" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="7" markerHeight="7" orient="auto">` +
		`<path d="M0,0.5 L8,4 L0,7.5 z" fill="#8391a7"/></marker></defs>` + "\n")
	fmt.Fprintf(&b, `<rect class="ground" x="0.5" y="0.5" width="%.0f" height="%.0f" rx="10"/>`+"\n", l.w-1, l.h-1)
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

// drawLine draws a line straight past its label and then in a curve to each end.
func (l *layout) drawLine(b *bytes.Buffer, li *line) {
	g := li.from
	x, y := g.x+g.w, g.portY(li.port, len(g.outs))
	bend := x + l.labels[g.layer]
	if g.kind == inputGlyph { // inputs differ in width; lines bend together
		bend = 0
		for _, other := range l.columns[g.layer] {
			bend = max(bend, other.x+other.w)
		}
		bend += l.labels[g.layer]
	}
	for _, e := range li.to {
		ex, ey := e.to.x, e.to.portY(e.port, len(e.to.ins))
		tip := ` marker-end="url(#tip)"`
		if e.to.kind == passGlyph {
			tip = ""
		}
		mid := (bend + ex) / 2
		fmt.Fprintf(b, `<path class="line" d="M%.1f,%.1f H%.1f C%.1f,%.1f %.1f,%.1f %.1f,%.1f"%s/>`+"\n",
			x, y, bend, mid, y, mid, ey, ex, ey, tip)
	}
	if g.kind == passGlyph {
		fmt.Fprintf(b, `<path class="line" d="M%.1f,%.1f H%.1f"/>`+"\n", g.x, y, x)
	}
	if li.name != "" {
		fmt.Fprintf(b, `<text class="name" x="%.1f" y="%.1f">%s</text>`+"\n", x+8, y-6, escape(li.name))
	}
	if li.kind != "" {
		fmt.Fprintf(b, `<text class="kind" x="%.1f" y="%.1f">%s</text>`+"\n", x+8, y+14, escape(li.kind))
	}
}

func (g *glyph) draw(b *bytes.Buffer) {
	if g.kind == passGlyph {
		return
	}
	class := [...]string{inputGlyph: "input", stepGlyph: "step", outputGlyph: "output"}[g.kind]
	radius := 8.0
	if g.kind != stepGlyph {
		radius = g.h / 2
	}
	fmt.Fprintf(b, `<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="%.1f"/>`+"\n", class, g.x, g.y-g.h/2, g.w, g.h, radius)
	x, y := g.x+g.w/2, g.y+4.5
	if g.caption != "" {
		y -= 7.5
		fmt.Fprintf(b, `<text class="caption" x="%.1f" y="%.1f">%s</text>`+"\n", x, y+16, escape(g.caption))
	}
	fmt.Fprintf(b, `<text class="title" x="%.1f" y="%.1f">%s</text>`+"\n", x, y, escape(g.title))
}

// escape makes s safe inside an element; characters that XML cannot represent become U+FFFD.
func escape(s string) string {
	var b bytes.Buffer
	// Writing to a buffer cannot fail.
	_ = xml.EscapeText(&b, []byte(s))
	return b.String()
}

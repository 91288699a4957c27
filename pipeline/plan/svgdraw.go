package plan

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"slices"
)

// drawLine draws a line straight past its label and then in a curve to each end.
func (l *layout) drawLine(b *bytes.Buffer, li *line) {
	g := li.from
	y := g.portY(li.port, len(g.outs))
	x := g.portX(y, true)
	bend := g.x + g.w
	if g.kind == inputGlyph { // inputs differ in width; lines bend together
		for _, other := range l.columns[g.layer] {
			bend = max(bend, other.x+other.w)
		}
	}
	bend += l.labels[g.layer]
	for _, e := range li.to {
		ey := e.to.portY(e.port, len(e.to.ins))
		ex := e.to.portX(ey, false)
		tip := ` marker-end="url(#tip)"`
		if e.to.kind == passGlyph {
			tip = ""
		}
		mid := (bend + ex) / 2
		fmt.Fprintf(b, `<path class="line%s" d="M%.1f,%.1f H%.1f C%.1f,%.1f %.1f,%.1f %.1f,%.1f"%s/>`+"\n",
			dashes(e.dashed), x, y, bend, mid, y, mid, ey, ex, ey, tip)
	}
	if g.kind == passGlyph {
		dashed := !slices.ContainsFunc(li.to, func(e *end) bool { return !e.dashed })
		fmt.Fprintf(b, `<path class="line%s" d="M%.1f,%.1f H%.1f"/>`+"\n", dashes(dashed), g.x, y, x)
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
	if g.kind == decisionGlyph {
		g.decision(b)
	} else {
		class := [...]string{inputGlyph: "input", stepGlyph: "step", choiceGlyph: "choice", outputGlyph: "output"}[g.kind]
		radius := 8.0
		if g.kind != stepGlyph && g.kind != choiceGlyph {
			radius = g.h / 2
		}
		fmt.Fprintf(b, `<rect class="%s%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="%.1f"/>`+"\n", class, dashes(g.dashed), g.x, g.y-g.h/2, g.w, g.h, radius)
	}
	x, y := g.x+g.w/2, g.y+4.5
	if g.caption != "" {
		y -= 7.5
		fmt.Fprintf(b, `<text class="caption" x="%.1f" y="%.1f">%s</text>`+"\n", x, y+16, escape(g.caption))
	}
	fmt.Fprintf(b, `<text class="title" x="%.1f" y="%.1f">%s</text>`+"\n", x, y, escape(g.title))
}

// dashes returns the class of what is drawn with dashes.
func dashes(dashed bool) string {
	if dashed {
		return " dashed"
	}
	return ""
}

// escape makes s safe inside an element; characters that XML cannot represent become U+FFFD.
func escape(s string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(s)) // writing to a buffer cannot fail
	return b.String()
}

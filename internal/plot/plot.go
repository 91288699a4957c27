// Package plot draws charts of lines as SVG: for pages that have Style, and as files.
package plot

import (
	"fmt"
	"html"
	"html/template"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Plot is a chart of lines.
type Plot struct {
	// Title is above the chart, X and Y are the names of the axes.
	Title, X, Y string
	Series      []Series
	LogX, LogY  bool
	// XLabel and YLabel format values of the axes. For example, Number.
	XLabel, YLabel func(float64) string
	// XTicks are the values with a line in the grid, nil for round ones.
	XTicks []float64
}

// Series is one line of a plot.
type Series struct {
	Name string
	// At are its points: x and y of each.
	At [][2]float64
	// Dashed makes it a dashed line, as for a limit.
	Dashed bool
}

// Style is the CSS of the parts of a plot, for the page that it is in.
const Style = `svg text { font-size: 12px; fill: #444; } svg .title { font-weight: 600; font-size: 14px; } .grid { stroke: #e2e2e2; } .ylabel { text-anchor: end; } .xlabel, .axis { text-anchor: middle; }`

const (
	plotWidth, plotHeight                         = 860, 340
	marginLeft, marginRight, marginTop, marginLow = 80, 20, 34, 46
	mostPoints                                    = 2000
)

// palette has colours that people with colour blindness can tell apart (Okabe and Ito).
var palette = [...]string{"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"} //nolint:gochecknoglobals // constant

// axis maps values to positions.
type axis struct {
	low, high float64
	from, to  float64
	log       bool
}

func newAxis(low, high, from, to float64, log bool) axis {
	if log {
		low, high = math.Log10(max(low, 1e-9)), math.Log10(max(high, 1e-9))
	}
	if high-low < 1e-9 {
		high = low + 1
	}
	return axis{low: low, high: high, from: from, to: to, log: log}
}

func (a *axis) at(v float64) float64 {
	if a.log {
		v = math.Log10(max(v, 1e-9))
	}
	return a.from + (v-a.low)/(a.high-a.low)*(a.to-a.from)
}

// values returns round values for the lines of the grid.
func (a *axis) values() []float64 {
	var list []float64
	if a.log {
		for e := math.Floor(a.low); e <= math.Ceil(a.high); e++ {
			for _, m := range []float64{1, 2, 5} {
				if v := math.Pow(10, e) * m; math.Log10(v) >= a.low-1e-9 && math.Log10(v) <= a.high+1e-9 {
					list = append(list, v)
				}
			}
		}
		return list
	}
	step := math.Pow(10, math.Floor(math.Log10((a.high-a.low)/4)))
	for _, m := range []float64{1, 2, 5, 10} {
		if (a.high-a.low)/(step*m) <= 6 {
			step *= m
			break
		}
	}
	for v := math.Ceil(a.low/step-1e-9) * step; v <= a.high+step*1e-9; v += step {
		list = append(list, v)
	}
	return list
}

// extent returns the limits of all values of a dimension.
func (p *Plot) extent(dimension int) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, s := range p.Series {
		for _, at := range s.At {
			low, high = min(low, at[dimension]), max(high, at[dimension])
		}
	}
	if low > high {
		return 0, 1
	}
	return low, high
}

// Write draws the plot as a file.
func (p *Plot) Write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif"><style>%s</style><rect width="100%%" height="100%%" fill="#fff"/>`,
		plotWidth, plotHeight, Style)
	p.draw(&b)
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// SVG draws the plot as an element of a page.
func (p *Plot) SVG() template.HTML {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" role="img" aria-label="%s">`, plotWidth, plotHeight, html.EscapeString(p.Title))
	p.draw(&b)
	b.WriteString("</svg>")
	return template.HTML(b.String()) //nolint:gosec // all texts are escaped
}

// draw writes the parts of the plot.
func (p *Plot) draw(b *strings.Builder) {
	xLow, xHigh := p.extent(0)
	yLow, yHigh := p.extent(1)
	if !p.LogY {
		yLow, yHigh = 0, yHigh*1.05
	}
	x := newAxis(xLow, xHigh, marginLeft, plotWidth-marginRight, p.LogX)
	y := newAxis(yLow, yHigh, plotHeight-marginLow, marginTop, p.LogY)
	fmt.Fprintf(b, `<text x="%d" y="18" class="title">%s</text>`, marginLeft, html.EscapeString(p.Title))
	for _, v := range y.values() {
		at := y.at(v)
		fmt.Fprintf(b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" class="grid"/><text x="%d" y="%.1f" class="ylabel">%s</text>`,
			marginLeft, plotWidth-marginRight, at, at, marginLeft-6, at+4, html.EscapeString(p.YLabel(v)))
	}
	ticks := p.XTicks
	if ticks == nil {
		ticks = x.values()
	}
	for _, v := range ticks {
		at := x.at(v)
		fmt.Fprintf(b, `<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" class="grid"/><text x="%.1f" y="%d" class="xlabel">%s</text>`,
			at, at, marginTop, plotHeight-marginLow, at, plotHeight-marginLow+16, html.EscapeString(p.XLabel(v)))
	}
	fmt.Fprintf(b, `<text x="%d" y="%d" class="xlabel">%s</text><text x="14" y="%d" class="axis" transform="rotate(-90 14 %d)">%s</text>`,
		(marginLeft+plotWidth-marginRight)/2, plotHeight-8, html.EscapeString(p.X), (marginTop+plotHeight-marginLow)/2, (marginTop+plotHeight-marginLow)/2, html.EscapeString(p.Y))
	for i := range p.Series {
		p.Series[i].draw(b, palette[i%len(palette)], &x, &y)
	}
	p.legend(b)
}

func (s *Series) draw(b *strings.Builder, colour string, x, y *axis) {
	step := max(1, len(s.At)/mostPoints)
	dashes := ""
	if s.Dashed {
		dashes = ` stroke-dasharray="6 4"`
	}
	fmt.Fprintf(b, `<polyline fill="none" stroke="%s" stroke-width="2"%s points="`, colour, dashes)
	for i := 0; i < len(s.At); i += step {
		fmt.Fprintf(b, "%.1f,%.1f ", x.at(s.At[i][0]), y.at(s.At[i][1]))
	}
	b.WriteString(`"/>`)
	if len(s.At) > 40 {
		return
	}
	for _, at := range s.At {
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"><title>%s: %s</title></circle>`, x.at(at[0]), y.at(at[1]), colour, html.EscapeString(s.Name), Number(at[1]))
	}
}

// legend writes the names of the series at the upper right.
func (p *Plot) legend(b *strings.Builder) {
	if len(p.Series) < 2 {
		return
	}
	at := plotWidth - marginRight
	for i, s := range slices.Backward(p.Series) {
		at -= 24 + 7*len(s.Name)
		fmt.Fprintf(b, `<rect x="%d" y="9" width="10" height="10" fill="%s"/><text x="%d" y="18" class="legend">%s</text>`,
			at, palette[i%len(palette)], at+14, html.EscapeString(s.Name))
	}
}

// Number formats a value with three digits.
func Number(v float64) string {
	switch {
	case v == 0:
		return "0"
	case math.Abs(v) >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// Latency formats microseconds.
func Latency(us float64) string {
	switch {
	case us >= 1e6:
		return Number(us/1e6) + " s"
	case us >= 1e3:
		return Number(us/1e3) + " ms"
	}
	return Number(us) + " us"
}

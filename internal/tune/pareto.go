package tune

import (
	"cmp"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"time"
)

// Pareto returns the operating points that no other point beats in both throughput and p99, by throughput.
func Pareto(points []Point) (front []Point) {
	sorted := slices.Clone(points)
	slices.SortStableFunc(sorted, func(a, b Point) int {
		return cmp.Or(-cmp.Compare(a.Throughput, b.Throughput), cmp.Compare(a.P99, b.P99))
	})
	lowest := time.Duration(math.MaxInt64)
	for _, p := range sorted {
		if p.P99 < lowest {
			front, lowest = append(front, p), p.P99
		}
	}
	slices.Reverse(front)
	return front
}

// Size of the picture and of its margins, in pixels.
const (
	pictureWidth, pictureHeight = 820, 480
	marginLeft, marginRight     = 70, 20
	marginTop, marginBottom     = 50, 60
	ticks                       = 5
	// shownLatency is the highest p99 in the picture, in objectives: beyond it are overloaded servers.
	shownLatency = 3
)

// SVG writes a picture of all simulated operating points: throughput to the right, p99 up. It marks the Pareto front,
// the objective, and the predicted and measured points of the current settings and of the advice.
func (r *Report) SVG(w io.Writer) error {
	high := float64(shownLatency*r.Objective) / float64(time.Millisecond)
	right := 1.0
	var points []Point
	for _, p := range r.Points {
		if millis(p.P99) <= high {
			points, right = append(points, p), max(right, p.Throughput)
		}
	}
	right = max(right, r.Advice.Measured.Throughput) * 1.05
	c := chart{right: right, high: high, Title: fmt.Sprintf("%s: latency against throughput of %d simulated operating points", r.Ensemble, len(points))}
	for _, p := range points {
		c.Dots = append(c.Dots, c.dot(&p.Outcome, ""))
	}
	for _, p := range Pareto(points) {
		c.Front = append(c.Front, c.dot(&p.Outcome, ""))
	}
	c.Objective = c.y(millis(r.Objective))
	c.ObjectiveLabel = "objective " + Round(r.Objective).String()
	c.mark("current, predicted", "current predicted", &r.Current.Predicted)
	c.mark("current, measured", "current", &r.Current.Measured)
	if r.Changed {
		c.mark("advice, predicted", "advice predicted", &r.Advice.Predicted)
		c.mark("advice, measured", "advice", &r.Advice.Measured)
	}
	for i := range ticks + 1 {
		part := float64(i) / ticks
		c.Columns = append(c.Columns, tick{c.x(part * right), rounded(part * right)})
		c.Rows = append(c.Rows, tick{c.y(part * high), fmt.Sprintf("%.3g", part*high)})
	}
	return chartTemplate().Execute(w, &c)
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// chart is what the template draws.
type chart struct {
	right, high    float64 // the largest values of the axes
	Title          string
	Dots, Front    []dot
	Marks          []dot
	Columns, Rows  []tick
	Objective      float64
	ObjectiveLabel string
}

type dot struct {
	X, Y        float64
	Class, Text string
}

type tick struct {
	At   float64
	Text string
}

func (c *chart) x(throughput float64) float64 {
	return math.Round(10*(marginLeft+(pictureWidth-marginLeft-marginRight)*min(throughput/c.right, 1))) / 10
}

func (c *chart) y(ms float64) float64 {
	return math.Round(10*(pictureHeight-marginBottom-(pictureHeight-marginTop-marginBottom)*min(ms/c.high, 1))) / 10
}

func (c *chart) dot(o *Outcome, class string) dot {
	return dot{X: c.x(o.Throughput), Y: c.y(millis(o.P99)), Class: class}
}

func (c *chart) mark(text, class string, o *Outcome) {
	d := c.dot(o, class)
	d.Text = fmt.Sprintf("%s: %s/s, p99 %s", text, rounded(o.Throughput), Round(o.P99))
	c.Marks = append(c.Marks, d)
}

// Add returns a sum, for positions in the template.
func (*chart) Add(a, b float64) float64 { return a + b }

// Line returns the position of a line of the legend.
func (*chart) Line(i int) int { return marginTop + 16 + 18*i }

// Bullet returns the position of the dot of a line of the legend.
func (c *chart) Bullet(i int) int { return c.Line(i) - 4 }

func chartTemplate() *template.Template { return template.Must(template.New("").Parse(chartSVG)) }

const chartSVG = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 820 480" font-family="sans-serif" font-size="12">
<style>
.grid{stroke:#ddd}.point{fill:#9ab;opacity:.5}.front{fill:none;stroke:#246;stroke-width:1.5}.objective{stroke:#c33;stroke-dasharray:6 4}
.current{fill:#e80;stroke:#e80}.advice{fill:#284;stroke:#284}.predicted{fill:#fff;stroke-width:2}
</style>
<rect width="820" height="480" fill="#fff"/>
<text x="70" y="28" font-size="15">{{.Title}}</text>
{{range .Columns}}<line class="grid" x1="{{.At}}" x2="{{.At}}" y1="50" y2="420"/><text x="{{.At}}" y="438" text-anchor="middle">{{.Text}}</text>
{{end}}{{range .Rows}}<line class="grid" x1="70" x2="800" y1="{{.At}}" y2="{{.At}}"/><text x="62" y="{{$.Add .At 4}}" text-anchor="end">{{.Text}}</text>
{{end}}<text x="435" y="464" text-anchor="middle">requests per second</text>
<text transform="translate(18 235) rotate(-90)" text-anchor="middle">p99, ms</text>
{{range .Dots}}<circle class="point" cx="{{.X}}" cy="{{.Y}}" r="2"/>
{{end}}<polyline class="front" points="{{range .Front}}{{.X}},{{.Y}} {{end}}"/>
<line class="objective" x1="70" x2="800" y1="{{.Objective}}" y2="{{.Objective}}"/><text x="796" y="{{$.Add .Objective -5}}" text-anchor="end" fill="#c33">{{.ObjectiveLabel}}</text>
{{range $i, $d := .Marks}}<circle class="{{.Class}}" cx="{{.X}}" cy="{{.Y}}" r="6"/><circle class="{{.Class}}" cx="84" cy="{{$.Bullet $i}}" r="5"/><text x="96" y="{{$.Line $i}}">{{.Text}}</text>
{{end}}</svg>
`

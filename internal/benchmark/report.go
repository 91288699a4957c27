package benchmark

import (
	_ "embed"
	"html/template"
	"io"
	"strconv"
	"time"

	"github.com/tutti-server/tutti/internal/plot"
)

// Report is the result of measurements of one model, or of a comparison.
type Report struct {
	Model      string      `json:"model"`
	URL        string      `json:"url"`
	Protocol   string      `json:"protocol"`
	Inputs     string      `json:"inputs"`
	Different  int         `json:"different_requests"`
	Sequences  int         `json:"sequence_length,omitempty"` // the requests of a sequence
	Started    time.Time   `json:"started"`
	Order      []string    `json:"steps,omitempty"` // the models of an ensemble's steps, in the order of its plan
	Results    []*Result   `json:"results,omitempty"`
	Comparison *Comparison `json:"comparison,omitempty"`
}

//go:embed report.html.tmpl
var pageText string

// named is a measurement with its name on the page.
type named struct {
	Name string
	*Result
}

// measured returns the measurements of the report.
func (r *Report) measured() []named {
	var list []named
	if c := r.Comparison; c != nil {
		for i := range c.Sides {
			list = append(list, named{c.Names[i], c.Sides[i]})
		}
	}
	for _, m := range r.Results {
		name := strconv.Itoa(m.Clients) + " clients"
		if m.Rate > 0 {
			name = plot.Number(m.Rate) + "/s"
		}
		list = append(list, named{name, m})
	}
	return list
}

// HTML writes a page with the report and its plots. The page needs no other file.
func (r *Report) HTML(w io.Writer) error {
	page, err := template.New("report").Funcs(template.FuncMap{
		"latency": plot.Latency, "number": plot.Number, "style": func() template.CSS { return plot.Style }, "seconds": func(s float64) string { return plot.Number(s) + " s" },
	}).Parse(pageText)
	if err != nil {
		return err
	}
	all := r.measured()
	plots := []template.HTML{percentiles(all), latencyOverTime(all), throughputOverTime(all)}
	if len(r.Results) > 1 {
		plots = append(plots, perLoad(r.Results))
	}
	return page.Execute(w, struct {
		*Report
		All   []named
		Plots []template.HTML
	}{r, all, plots})
}

// percentiles plots the distributions: the x axis has the share of requests beyond a latency, in powers of ten.
func percentiles(all []named) template.HTML {
	p := plot.Plot{
		Title: "Latency by percentile", X: "percentile", Y: "latency", LogX: true, LogY: true, YLabel: plot.Latency,
		XLabel: func(v float64) string { return strconv.FormatFloat(100-100/v, 'g', 7, 64) + " %" },
	}
	most := 1.0
	for _, m := range all {
		s := plot.Series{Name: m.Name}
		for _, q := range m.Quantiles {
			s.At = append(s.At, [2]float64{1 / (1 - q.Quantile), q.Micros})
			most = max(most, 1/(1-q.Quantile))
		}
		p.Series = append(p.Series, s)
	}
	for _, v := range []float64{1, 2, 10, 100, 1000, 10000, 100000, 1e6, 1e7} {
		if v <= most {
			p.XTicks = append(p.XTicks, v)
		}
	}
	return p.SVG()
}

// latencyOverTime plots p50 and p99 of the intervals.
func latencyOverTime(all []named) template.HTML {
	p := plot.Plot{Title: "Latency over time", X: "seconds", Y: "latency", LogY: true, XLabel: plot.Number, YLabel: plot.Latency}
	for _, m := range all {
		p.Series = append(p.Series,
			overTime(m, m.Name+" p50", func(t *Point) float64 { return t.P50 }), overTime(m, m.Name+" p99", func(t *Point) float64 { return t.P99 }))
	}
	return p.SVG()
}

// throughputOverTime plots the throughput of the intervals.
func throughputOverTime(all []named) template.HTML {
	p := plot.Plot{Title: "Throughput over time", X: "seconds", Y: "requests/s", XLabel: plot.Number, YLabel: plot.Number}
	for _, m := range all {
		p.Series = append(p.Series, overTime(m, m.Name, func(t *Point) float64 { return t.Throughput }))
	}
	return p.SVG()
}

// overTime returns a line of the intervals that have responses.
func overTime(m named, name string, value func(*Point) float64) plot.Series {
	s := plot.Series{Name: name}
	for i := range m.Points {
		if t := &m.Points[i]; t.Throughput > 0 {
			s.At = append(s.At, [2]float64{t.At, value(t)})
		}
	}
	return s
}

// perLoad plots throughput by concurrency, or by the rate of arrivals.
func perLoad(results []*Result) template.HTML {
	p := plot.Plot{Title: "Throughput by concurrency", X: "clients", Y: "requests/s", LogX: true, XLabel: plot.Number, YLabel: plot.Number}
	if results[0].Rate > 0 {
		p.Title, p.X = "Throughput by rate of arrivals", "arrivals/s"
	}
	s := plot.Series{Name: "throughput"}
	for _, r := range results {
		at := float64(r.Clients)
		if r.Rate > 0 {
			at = r.Rate
		}
		s.At = append(s.At, [2]float64{at, r.Throughput})
		p.XTicks = append(p.XTicks, at)
	}
	p.Series = []plot.Series{s}
	return p.SVG()
}

// Title returns the title of the page.
func (r *Report) Title() string { return "Benchmark of " + r.Model }

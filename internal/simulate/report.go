package simulate

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/tutti-server/tutti/internal/plot"
	"github.com/tutti-server/tutti/internal/table"
	"github.com/tutti-server/tutti/scheduler/sim"
)

// Report has the outcome of each policy at each rate.
type Report struct {
	Settings Settings
	Rows     []Row
}

// Row has the outcomes at a rate, in the order of the policies.
type Row struct {
	Rate     float64
	Load     float64 // the rate over the capacity
	Outcomes []sim.Outcome
}

// name returns the name of a policy.
func name(p sim.Policy) string {
	for _, known := range sim.Policies {
		if known.Policy == p {
			return known.Name
		}
	}
	return ""
}

// Write prints the report for people.
func (r *Report) Write(w io.Writer) error {
	var b strings.Builder
	s, g := &r.Settings, r.Settings.Graph
	fmt.Fprintf(&b, "%s: %s requests/s with full batches, a limit of %v; arrivals: %s, %v", g.Name, plot.Number(g.Capacity()), s.Limit, s.Traffic.Name, s.Length.Round(time.Millisecond))
	if s.Noise > 0 {
		fmt.Fprintf(&b, "; times vary by %s %%", plot.Number(100*s.Noise))
	}
	b.WriteString("\n\n")
	table.Right(&b, "", g.table())
	b.WriteString("\nRequests in time, % of those that arrive:\n")
	table.Right(&b, "", r.table(true, func(o *sim.Outcome) string { return percent(o.Goodput()) }))
	b.WriteString("\nTime of the devices for requests that were not in time, %:\n")
	table.Right(&b, "", r.table(false, func(o *sim.Outcome) string { return percent(o.Waste()) }))
	b.WriteString("\np99 of the requests that were executed to their end:\n")
	table.Right(&b, "", r.table(false, func(o *sim.Outcome) string { return shown(o.P99) }))
	for _, note := range g.Notes {
		fmt.Fprintf(&b, "\nNote: %s.", note)
	}
	if len(g.Notes) > 0 {
		b.WriteString("\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// table returns the steps.
func (g *Graph) table() [][]string {
	rows := [][]string{{"step", "after", "fixed", "a row", "batch", "instances", "device", "share"}}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		after, instances, device, share := "-", strconv.Itoa(max(n.Instances, 1)), "own", "100 %"
		var names []string
		for _, a := range n.After {
			names = append(names, g.Nodes[a].Name)
		}
		if len(names) > 0 {
			after = strings.Join(names, ",")
		}
		if n.Instances == unlimited {
			instances = "any"
		}
		if n.Device > 0 {
			device = g.Devices[n.Device-1]
		}
		if n.Share > 0 {
			share = plot.Number(100*n.Share) + " %"
		}
		rows = append(rows, []string{n.Name, after, shown(n.Fixed), shown(n.PerRow), strconv.Itoa(n.MaxBatch), instances, device, share})
	}
	return rows
}

// table returns a figure of each policy at each rate.
func (r *Report) table(bound bool, figure func(*sim.Outcome) string) [][]string {
	head := []string{"load", "requests/s"}
	if bound {
		head = append(head, "bound")
	}
	for _, p := range r.Settings.Policies {
		head = append(head, name(p))
	}
	rows := [][]string{head}
	for i := range r.Rows {
		x := &r.Rows[i]
		row := []string{fmt.Sprintf("%.2f", x.Load), plot.Number(x.Rate)}
		if bound {
			row = append(row, percent(x.Outcomes[0].Bound))
		}
		for k := range x.Outcomes {
			row = append(row, figure(&x.Outcomes[k]))
		}
		rows = append(rows, row)
	}
	return rows
}

func percent(part float64) string { return fmt.Sprintf("%.1f", 100*part) }

// shown returns a duration with three digits.
func shown(d time.Duration) string {
	for unit := time.Duration(1); ; unit *= 10 {
		if d/unit < 1000 {
			return d.Round(unit).String()
		}
	}
}

// Data is the report as programs read it.
type Data struct {
	Ensemble string     `json:"ensemble"`
	Limit    float64    `json:"limit_ms"`
	Capacity float64    `json:"capacity"`
	Arrivals string     `json:"arrivals"`
	Seconds  float64    `json:"seconds"`
	Noise    float64    `json:"noise"`
	Seed     uint64     `json:"seed"`
	Steps    []StepData `json:"steps"`
	Loads    []LoadData `json:"loads"`
	Notes    []string   `json:"notes,omitempty"`
}

// StepData is a step of the graph. Its names are those of the file of a graph.
type StepData struct {
	Name      string   `json:"name"`
	After     []string `json:"after,omitempty"`
	Fixed     float64  `json:"fixed_ms"`
	PerRow    float64  `json:"row_ms"`
	MaxBatch  int      `json:"max_batch_size"`
	Instances int      `json:"instances"`
	Device    string   `json:"device,omitempty"`
	Share     float64  `json:"share,omitempty"`
}

// LoadData has the outcomes at a rate.
type LoadData struct {
	Load     float64      `json:"load"`
	Rate     float64      `json:"rate"`
	Offered  int          `json:"offered"`
	Bound    float64      `json:"bound"`
	Policies []PolicyData `json:"policies"`
}

// PolicyData is the outcome of a policy.
type PolicyData struct {
	Policy  string  `json:"policy"`
	InTime  int     `json:"in_time"`
	Late    int     `json:"late"`
	Refused int     `json:"refused"`
	Dropped int     `json:"dropped"`
	Goodput float64 `json:"goodput"`
	Waste   float64 `json:"waste"`
	P50     float64 `json:"p50_ms"`
	P99     float64 `json:"p99_ms"`
}

// Data returns the report for programs.
func (r *Report) Data() *Data {
	s, g := &r.Settings, r.Settings.Graph
	d := &Data{
		Ensemble: g.Name, Limit: inMillis(s.Limit), Capacity: g.Capacity(), Arrivals: s.Traffic.Name, Seconds: s.Length.Seconds(), Noise: s.Noise, Seed: s.Seed,
		Notes: g.Notes,
	}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		step := StepData{Name: n.Name, Fixed: inMillis(n.Fixed), PerRow: inMillis(n.PerRow), MaxBatch: n.MaxBatch, Instances: max(n.Instances, 1), Share: n.Share}
		for _, a := range n.After {
			step.After = append(step.After, g.Nodes[a].Name)
		}
		if n.Device > 0 {
			step.Device = g.Devices[n.Device-1]
		}
		d.Steps = append(d.Steps, step)
	}
	for i := range r.Rows {
		x := &r.Rows[i]
		l := LoadData{Load: x.Load, Rate: x.Rate, Offered: x.Outcomes[0].Offered, Bound: x.Outcomes[0].Bound}
		for k := range x.Outcomes {
			o := &x.Outcomes[k]
			l.Policies = append(l.Policies, PolicyData{
				Policy: name(s.Policies[k]), InTime: o.InTime, Late: o.Late, Refused: o.Refused, Dropped: o.Dropped, Goodput: o.Goodput(), Waste: o.Waste(),
				P50: inMillis(o.P50), P99: inMillis(o.P99),
			})
		}
		d.Loads = append(d.Loads, l)
	}
	return d
}

func inMillis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// SVG draws the part of the requests in time over the load, with a line for each policy and one for the bound.
func (r *Report) SVG(w io.Writer) error {
	p := plot.Plot{
		Title: fmt.Sprintf("%s: requests in time within %v", r.Settings.Graph.Name, r.Settings.Limit), X: "load: arrivals over what full batches execute", Y: "in time, % of the arrivals",
		XLabel: plot.Number, YLabel: plot.Number, Series: []plot.Series{{Name: "bound", Dashed: true}},
	}
	for _, policy := range r.Settings.Policies {
		p.Series = append(p.Series, plot.Series{Name: name(policy)})
	}
	for i := range r.Rows {
		x := &r.Rows[i]
		p.Series[0].At = append(p.Series[0].At, [2]float64{x.Load, 100 * x.Outcomes[0].Bound})
		for k := range x.Outcomes {
			p.Series[k+1].At = append(p.Series[k+1].At, [2]float64{x.Load, 100 * x.Outcomes[k].Goodput()})
		}
	}
	return p.Write(w)
}

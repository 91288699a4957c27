package tune

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tutti-server/tutti/internal/table"
)

// Write prints the report: the measured models, predictions beside measurements, and the changes as a diff.
func (r *Report) Write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Ensemble %s, p99 of at most %s, %s, %s.\n\n", r.Ensemble, Round(r.Objective), table.Count(r.Cores, "core"), table.Count(len(r.Network.Samples), "sample request"))
	table.Right(&b, "", r.Network.costs())
	r.Network.largerText(&b)
	r.Network.versionsText(&b)
	fmt.Fprintf(&b, "\nBesides its models a request takes %s of processor time and %s without; under load executions take %.2f times as long.\n\n",
		Round(r.Overhead.CPU), Round(r.Overhead.Wait), r.slowdown())
	fmt.Fprintf(&b, "current: %s\n", r.Network.describe(r.Current.Settings))
	if r.Changed {
		fmt.Fprintf(&b, "advice:  %s\n", r.Network.describe(r.Advice.Settings))
	} else {
		fmt.Fprintln(&b, "advice:  no change; nothing that was tried is better by 3 %")
	}
	if !r.Given {
		fmt.Fprintf(&b, "\nHighest rate within the objective, as predicted with 30 %% headroom: %s requests/s now, %s with the advice.\n",
			rounded(r.Current.Highest), rounded(r.Advice.Highest))
	}
	fmt.Fprintf(&b, "\nAt %s requests/s:\n", rounded(r.Rate))
	table.Right(&b, "", r.comparison())
	if r.Foreign > quiet {
		fmt.Fprintf(&b, "Other processes used %.1f cores meanwhile: on an idle machine the results are more exact.\n", r.Foreign)
	}
	r.outside(&b)
	fmt.Fprintf(&b, "%s It took %s.\n", r.verdict(), r.Elapsed.Round(time.Second))
	for i := range r.Changes {
		fmt.Fprintf(&b, "\n%s", r.Changes[i].Diff())
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// verdict says whether the advice holds, and what to rely on if only its predictions do not.
func (r *Report) verdict() string {
	ok, reason := r.Holds()
	if ok {
		return "The advice holds: within 15 % of the predictions."
	}
	text := "The advice does not hold: " + reason + "."
	if validated, _ := r.Validated(); validated {
		m := &r.Advice.Measured
		text += fmt.Sprintf(" What was measured is within the objective: %s requests/s with a p99 of %s. Rely on that, not on the predictions.", rounded(m.Throughput), Round(m.P99))
	}
	return text
}

// outside says how much of the processor time was outside the models, where that is most of it: the predictions know that part
// from requests one at a time only.
func (r *Report) outside(b *strings.Builder) {
	measured, predicted := r.Advice.Measured.perRequest(), r.Advice.Predicted.perRequest()
	models := predicted - time.Duration(r.slowdown()*float64(r.Overhead.CPU))
	if outside := measured - models; outside > measured/2 {
		fmt.Fprintf(b, "A request took %s of processor time, predicted %s. %.0f %% of it was outside the models, mostly to wake threads: settings change little of that.\n",
			Round(measured), Round(predicted), 100*float64(outside)/float64(measured))
	}
}

// largerText prints up to which max_batch_size models were measured and how exact the predictions are there, or why not.
func (n *Network) largerText(b *strings.Builder) {
	for i := range n.Models {
		m := &n.Models[i]
		switch mean, batches := m.beyond(); {
		case m.Fixed != "":
			fmt.Fprintf(b, "%s: max_batch_size stays %d: %s\n", m.Name, m.Current.MaxBatch, m.Fixed)
		case m.Largest > m.Current.MaxBatch:
			fmt.Fprintf(b, "%s: its file takes batches beyond max_batch_size %d. They were measured up to %d; there the fit is off by %.0f %% (%s).\n",
				m.Name, m.Current.MaxBatch, m.Largest, 100*mean, table.Count(batches, "measurement"))
		}
	}
}

// beyond returns the mean error of the fits in batches that are larger than the current max_batch_size, and how many were
// measured.
func (m *Model) beyond() (mean float64, batches int) {
	for _, c := range m.Costs {
		mean, batches = mean+c.Beyond*float64(c.BeyondBatches), batches+c.BeyondBatches
	}
	return mean / max(float64(batches), 1), batches
}

func (r *Report) slowdown() float64 {
	if r.Overhead.Slowdown == 0 {
		return 1
	}
	return r.Overhead.Slowdown
}

// costs returns a table of the measured models.
func (n *Network) costs() [][]string {
	rows := [][]string{{"model", "threads", "1 request", "8 requests", "cores", "interference", "error of the fit"}}
	for i := range n.Models {
		m := &n.Models[i]
		size := n.typical(i)
		for _, x := range m.executions() {
			c := m.Costs[x]
			row := []string{m.Name + x.Version.suffix(), strconv.Itoa(x.Threads), c.copies(size, 1), "", fmt.Sprintf("%.2f", c.Width), fmt.Sprintf("%.0f-%.0f %%", 100*c.Interference[0].Part, 100*c.Interference[1].Part), fmt.Sprintf("%.0f %%", 100*c.Error)}
			if x.Threads == 0 {
				row[1] = ""
			}
			if m.Largest > 1 {
				row[3] = c.copies(size, 8)
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// typical returns the size of a middle sample at a model.
func (n *Network) typical(model int) *Size {
	node := slices.IndexFunc(n.Nodes, func(x Node) bool { return x.Model == model })
	list := spread(n, node)
	return &n.Samples[list[len(list)/2]].Sizes[node]
}

// copies returns the time of a batch of equal requests.
func (c *Cost) copies(s *Size, times int) string {
	var b Batch
	for range times {
		b.add(s)
	}
	return Round(time.Duration(c.Wall(&b))).String()
}

// comparison returns a table of predictions and measurements.
func (r *Report) comparison() [][]string {
	rows := [][]string{{"", "p50 predicted", "measured", "p99 predicted", "measured", "requests/s predicted", "measured", "cores predicted", "measured"}}
	add := func(name string, c *Candidate) {
		p, m := &c.Predicted, &c.Measured
		rows = append(rows, []string{
			name, Round(p.P50).String() + difference(float64(p.P50), float64(m.P50)), Round(m.P50).String(),
			Round(p.P99).String() + difference(float64(p.P99), float64(m.P99)), Round(m.P99).String(),
			rounded(p.Throughput) + difference(p.Throughput, m.Throughput), rounded(m.Throughput), fmt.Sprintf("%.2f", p.CPU), fmt.Sprintf("%.2f", m.CPU),
		})
	}
	add("current", &r.Current)
	if r.Changed {
		add("advice", &r.Advice)
	}
	return rows
}

// difference returns how far a prediction is from the measurement. For example, " (+4 %)".
func difference(predicted, measured float64) string {
	if measured <= 0 {
		return ""
	}
	return fmt.Sprintf(" (%+.0f %%)", 100*(predicted/measured-1))
}

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// report holds all figures of a run.
type report struct {
	Machine  string   `json:"machine"`
	Versions []string `json:"versions"`
	Cells    []cell   `json:"cells"`
	Starts   []boot   `json:"starts"`
	Taxes    []tax    `json:"taxes"`
	// Analyses holds the figures of perf_analyzer.
	Analyses []analysis `json:"analyses,omitempty"`
}

// boot holds the figures of a server's start.
type boot struct {
	Scenario     string  `json:"scenario"`
	Server       string  `json:"server"`
	Seconds      float64 `json:"seconds"` // until it was ready
	Resident     float64 `json:"resident_mib"`
	Proportional float64 `json:"proportional_mib"` // with shared memory counted once
	Idle         float64 `json:"idle_cpus"`        // CPUs that it keeps busy without requests
}

// print writes the tables. A ratio is our figure divided by the figure of the server in that row.
func (r *report) print(w io.Writer) {
	fmt.Fprintf(w, "%s\n%s\n\n", r.Machine, strings.Join(r.Versions, "; "))
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	if len(r.Cells) > 0 {
		fmt.Fprintln(t, "scenario\tprotocol\tloop\tclients\tserver\treq/s\t±\tp50 ms\tp99 ms\tp99.9 ms\tCPU s/1000\t±\tRSS MiB\treq/s ratio\tp50 ratio\tp99 ratio\tCPU ratio")
	}
	for i := range r.Cells {
		r.Cells[i].print(t)
	}
	if len(r.Starts) > 0 {
		fmt.Fprintln(t, "\nscenario\tserver\tready s\tRSS MiB\tPSS MiB\tidle CPU\tready ratio\tRSS ratio\tPSS ratio")
	}
	for i := range r.Starts {
		r.printStart(t, &r.Starts[i])
	}
	if len(r.Taxes) > 0 {
		fmt.Fprintln(t, "\nscenario\tserver\tprotocol\tclients\tensemble req/s\tslowest step\tits req/s\ttax\tCPU s/1000\tof the steps\tCPU ratio")
	}
	for i := range r.Taxes {
		r.Taxes[i].print(t)
	}
	if len(r.Analyses) > 0 {
		fmt.Fprintln(t, "\nscenario\tserver\tprotocol\tclients\treq/s\tp99 ms\tby perf_analyzer req/s\tp99 ms")
	}
	for _, a := range r.Analyses {
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%.0f\t%.2f\t%.0f\t%.2f\n", a.Scenario, a.Server, a.Protocol, a.Clients, a.Ours[0], a.Ours[1], a.Theirs[0], a.Theirs[1])
	}
	_ = t.Flush() // to standard output
}

func (c *cell) print(w io.Writer) {
	loop := c.Loop
	if c.Rate > 0 {
		loop = fmt.Sprintf("%s %.0f/s", c.Loop, c.Rate)
	}
	ours := &c.Servers[0]
	for i := range c.Servers {
		f := &c.Servers[i]
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t", c.Scenario, c.Protocol, loop, c.Clients, f.Server)
		if f.Missing != "" {
			fmt.Fprintln(w, strings.Repeat("-\t", 11)+"-") // one cell per column, which keeps the columns aligned
			continue
		}
		fmt.Fprintf(w, "%.0f\t%.0f%%\t%.2f\t%.2f\t%.2f\t", f.Throughput, f.Spread*100, f.P50, f.P99, f.P999)
		fmt.Fprintf(w, "%s\t%.0f%%\t%.0f\t", known("%.4f", f.CPU), f.SpreadCPU*100, f.Resident)
		if i > 0 {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s", ratio(ours.Throughput, f.Throughput), ratio(ours.P50, f.P50), ratio(ours.P99, f.P99), ratio(ours.CPU, f.CPU))
		}
		if f.Errors > 0 {
			fmt.Fprintf(w, "\t%d errors", f.Errors)
		}
		fmt.Fprintln(w)
	}
}

func (r *report) printStart(w io.Writer, s *boot) {
	fmt.Fprintf(w, "%s\t%s\t%.2f\t%.0f\t%.0f\t%.1f%%\t", s.Scenario, s.Server, s.Seconds, s.Resident, s.Proportional, s.Idle*100)
	i := slices.IndexFunc(r.Starts, func(o boot) bool { return o.Scenario == s.Scenario })
	if ours := &r.Starts[i]; ours != s {
		fmt.Fprintf(w, "%s\t%s\t%s", ratio(ours.Seconds, s.Seconds), ratio(ours.Resident, s.Resident), ratio(ours.Proportional, s.Proportional))
	}
	fmt.Fprintln(w)
}

func (t *tax) print(w io.Writer) {
	cpu, slowest := 0.0, 0.0
	for i := range t.Steps {
		cpu += t.Steps[i].CPU
		if t.Steps[i].Model == t.Slowest {
			slowest = t.Steps[i].Throughput
		}
	}
	fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%.0f\t%s\t%.0f\t%.2f\t", t.Scenario, t.Server, t.Protocol, t.Clients, t.Ensemble.Throughput, t.Slowest, slowest, t.Ratio)
	fmt.Fprintf(w, "%s\t%s\t%s\n", known("%.4f", t.Ensemble.CPU), known("%.4f", cpu), known("%.2f", t.CPU))
}

// known formats a figure, or a dash if it is unknown.
func known(format string, v float64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf(format, v)
}

func ratio(ours, theirs float64) string {
	if ours == 0 || theirs == 0 {
		return "-"
	}
	if ours < theirs/10 {
		return fmt.Sprintf("%.3f", ours/theirs)
	}
	return fmt.Sprintf("%.2f", ours/theirs)
}

package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/internal/benchmark"
	"github.com/tutti-server/tutti/internal/table"
)

// print writes the results to stdout.
func (a *benchCall) print() error {
	return a.set.out.print(a.stdout, &a.report, a.printTable)
}

// printTable prints the results for people.
func (a *benchCall) printTable() error {
	var b strings.Builder
	fmt.Fprintf(&b, "model '%s' at %s, %s, inputs: %s (%d different requests)", a.report.Model, a.report.URL, a.report.Protocol, a.report.Inputs, a.report.Different)
	if n := a.report.Sequences; n > 0 {
		fmt.Fprintf(&b, ", sequences of %d requests", n)
	}
	b.WriteString("\n\n")
	if c := a.report.Comparison; c != nil {
		printComparison(&b, c)
		for i, r := range c.Sides {
			printResult(&b, r, c.Names[i])
		}
	} else {
		rows := [][]string{resultHeading("load")}
		for _, r := range a.report.Results {
			rows = append(rows, resultRow(loadText(r.Clients, r.Rate), r))
		}
		table.Right(&b, "", rows)
		for _, r := range a.report.Results {
			printResult(&b, r, loadText(r.Clients, r.Rate))
		}
	}
	_, err := io.WriteString(a.stdout, b.String())
	return err
}

func resultHeading(first string) []string {
	return []string{first, "requests/s", "mean", "p50", "p90", "p99", "p99.9", "max", "failed", "client CPU"}
}

func resultRow(name string, r *benchmark.Result) []string {
	row := append([]string{name, count(r.Throughput)}, latencies(&r.Latency, r.Requests > 0)...)
	return append(row, strconv.FormatInt(r.Failed, 10), fmt.Sprintf("%.2f", r.Cores))
}

// latencies returns the cells of a distribution, "-" if there is none.
func latencies(l *benchmark.Latency, measured bool) (cells []string) {
	for _, us := range []float64{l.Mean, l.P50, l.P90, l.P99, l.P999, l.Max} {
		text := "-"
		if measured {
			text = duration(us)
		}
		cells = append(cells, text)
	}
	return cells
}

// printStreamed prints the latencies of the first responses, and how many responses a request had.
func printStreamed(b *strings.Builder, r *benchmark.Result, name string) {
	s := r.Streamed
	if s == nil || r.Requests == 0 {
		return
	}
	fmt.Fprintf(b, "\nUntil the first response, %s (above: until the last one; %.2f responses to a request):\n", name, float64(s.Responses)/float64(r.Requests))
	table.Right(b, "  ", [][]string{{"", "mean", "p50", "p90", "p99", "p99.9", "max"}, append([]string{"first response"}, latencies(&s.First, s.Responses > 0)...)})
}

// printResult prints what one measurement is about besides its row: doubts, errors, and where the time went.
func printResult(b *strings.Builder, r *benchmark.Result, name string) {
	printStreamed(b, r, name)
	var notes []string
	if r.Interrupted {
		notes = append(notes, "interrupted after "+strconv.FormatFloat(r.Seconds, 'f', 1, 64)+" s")
	} else if r.Stable != nil && !*r.Stable {
		notes = append(notes, fmt.Sprintf("no three windows in a row agree, of %d: the figures are those of the last three; another load on the machines, or --window, may be why", len(r.Windows)))
	}
	if r.Backlog > 0.1 {
		notes = append(notes, fmt.Sprintf("the requests fell %.1f s behind their arrivals: the server, or --clients %d, does not keep up with %s/s", r.Backlog, r.Clients, count(r.Rate)))
	}
	for _, f := range r.Failures {
		notes = append(notes, fmt.Sprintf("%d failed, %s: %s", f.Count, f.Kind, oneLine(f.Example)))
	}
	if len(notes) > 0 {
		fmt.Fprintf(b, "\n%s:\n", name)
		for _, n := range notes {
			fmt.Fprintf(b, "  %s\n", n)
		}
	}
	if len(r.Steps) == 0 {
		return
	}
	fmt.Fprintf(b, "\nWhere the time went, %s (the mean of a request to each model, by the server's statistics):\n", name)
	rows := [][]string{{"model", "requests", "failed", "total", "queue", "input", "infer", "output", "batch"}}
	for i := range r.Steps {
		s := &r.Steps[i]
		rows = append(rows, []string{
			s.Model, strconv.FormatUint(s.Requests, 10), strconv.FormatUint(s.Failed, 10), duration(s.Total), duration(s.Queue), duration(s.Input), duration(s.Infer), duration(s.Output),
			strconv.FormatFloat(s.Batch, 'f', 2, 64),
		})
	}
	table.Right(b, "  ", rows)
	if last := &r.Steps[len(r.Steps)-1]; last.Requests > 0 && r.Requests > 0 && r.Latency.Mean > last.Total {
		fmt.Fprintf(b, "  network, protocol and client: %s\n", duration(r.Latency.Mean-last.Total))
	}
}

func printComparison(b *strings.Builder, c *benchmark.Comparison) {
	rows := [][]string{resultHeading("side")}
	for i, r := range c.Sides {
		rows = append(rows, resultRow(c.Names[i], r))
	}
	table.Right(b, "", rows)
	fmt.Fprintf(b, "\nRatios of the first to the second, %d rounds, %s, with confidence intervals of 95 %%:\n", len(c.Rounds[0]), loadText(c.Load.Clients, c.Load.Rate))
	rows = [][]string{{"", "ratio", "from", "to", ""}}
	for _, r := range c.Ratios {
		verdict := "no difference found"
		if r.Low > 1 {
			verdict = "higher"
		} else if r.High < 1 {
			verdict = "lower"
		}
		rows = append(rows, []string{r.Figure, fmt.Sprintf("%.3f", r.Value), fmt.Sprintf("%.3f", r.Low), fmt.Sprintf("%.3f", r.High), verdict})
	}
	if len(c.Ratios) == 0 {
		b.WriteString("  none: it takes two complete rounds with responses from both sides\n")
		return
	}
	table.Right(b, "  ", rows)
}

// loadText describes a load.
func loadText(clients int, rate float64) string {
	if rate > 0 {
		return count(rate) + "/s"
	}
	if clients == 1 {
		return "1 client"
	}
	return strconv.Itoa(clients) + " clients"
}

func progressText(p *benchmark.Progress) string {
	text := fmt.Sprintf("%s requests/s, p50 %s, p99 %s", count(p.Rate), duration(p.P50), duration(p.P99))
	if p.Warmup {
		text = "warm-up, " + text
	} else {
		text = fmt.Sprintf("window %d, ", p.Windows+1) + text
	}
	if p.Failed > 0 {
		text += fmt.Sprintf(", %d failed", p.Failed)
	}
	return text
}

// count formats a number with three or more digits.
func count(v float64) string {
	switch {
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// duration formats microseconds.
func duration(us float64) string {
	switch {
	case us >= 1e6:
		return count(us/1e6) + " s"
	case us >= 1e3:
		return count(us/1e3) + " ms"
	}
	return strconv.FormatFloat(us, 'f', 0, 64) + " us"
}

// oneLine returns a text without line breaks.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

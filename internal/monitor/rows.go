package monitor

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/benchmark"
	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/table"
)

// Figure is a value that is unknown if it is negative.
type Figure float64

// MarshalJSON returns null for an unknown value.
func (f Figure) MarshalJSON() ([]byte, error) {
	if f < 0 {
		return []byte("null"), nil
	}
	return json.Marshal(float64(f))
}

// Row has the figures of one version of a model between two samples. Times are the mean of a request in microseconds.
type Row struct {
	Name      string  `json:"model"`
	Version   string  `json:"version"`
	State     string  `json:"state"`
	Reason    string  `json:"reason,omitempty"` // why it is not ready
	Platform  string  `json:"platform,omitempty"`
	Rate      float64 `json:"rate"`   // successful requests per second
	Errors    float64 `json:"errors"` // failed requests per second
	P50       Figure  `json:"p50_us"` // of the stored traces of the last minute
	P99       Figure  `json:"p99_us"`
	Mean      Figure  `json:"mean_us"`
	Queue     Figure  `json:"queue_us"`
	Compute   Figure  `json:"compute_us"`
	Waiting   Figure  `json:"waiting"` // requests in the queue
	Batch     Figure  `json:"batch_size"`
	Instances string  `json:"instances,omitempty"`
	Requests  uint64  `json:"requests"` // in all, successful ones
}

// key names a version of a model.
type key struct{ name, version string }

// Rows returns a row for each version that both samples know or that is not ready.
func Rows(before, after *Sample) []Row {
	seconds := after.At.Sub(before.At).Seconds()
	steps := map[key]benchmark.Step{}
	for _, s := range benchmark.Steps(before.Statistics, after.Statistics) {
		steps[key{s.Model, s.Version}] = s
	}
	views := map[key]*inspect.ModelView{}
	for i := range after.Models {
		views[key{after.Models[i].Name, after.Models[i].Version}] = &after.Models[i]
	}
	totals := map[key]uint64{}
	for i := range after.Statistics {
		s := &after.Statistics[i]
		totals[key{s.Name, s.Version}] = s.Inference.Success.Count
	}
	var list []Row
	for _, e := range entries(after) {
		k := key{e.Name, e.Version}
		r := Row{Name: clean(e.Name), Version: clean(e.Version), State: string(e.State), Reason: clean(e.Reason), Instances: after.Instances[e.Name], Requests: totals[k]}
		r.setStep(steps[k], seconds)
		r.setView(views[k])
		list = append(list, r)
	}
	return list
}

// entries returns the versions of a sample: those of the index that were ever loaded, or those with statistics.
func entries(s *Sample) []infer.Entry {
	var list []infer.Entry
	for _, e := range s.Index {
		if e.State != "" {
			list = append(list, e)
		}
	}
	for i := range s.Statistics {
		m := &s.Statistics[i]
		if !slices.ContainsFunc(list, func(e infer.Entry) bool { return e.Name == m.Name && e.Version == m.Version }) {
			list = append(list, infer.Entry{Name: m.Name, Version: m.Version, State: infer.Ready})
		}
	}
	return list
}

// setStep sets what the statistics say.
func (r *Row) setStep(s benchmark.Step, seconds float64) {
	r.Mean, r.Queue, r.Compute, r.Batch = -1, -1, -1, -1
	if seconds > 0 {
		r.Rate, r.Errors = float64(s.Requests)/seconds, float64(s.Failed)/seconds
	}
	if s.Requests > 0 {
		r.Mean, r.Queue, r.Compute = Figure(s.Total), Figure(s.Queue), Figure(s.Compute())
	}
	if s.Executions > 0 {
		r.Batch = Figure(s.Batch)
	}
}

// setView sets what the dashboard says; v is nil without one.
func (r *Row) setView(v *inspect.ModelView) {
	r.P50, r.P99, r.Waiting = -1, -1, -1
	if v == nil {
		return
	}
	r.Platform, r.Waiting = clean(v.Platform), Figure(v.Queue)
	if v.P99Ns > 0 {
		r.P50, r.P99 = Figure(v.P50Ns)/1e3, Figure(v.P99Ns)/1e3
	}
}

// clean returns a text without what a terminal would obey.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}

// column is a column of the table.
type column struct {
	title string
	// weight orders the columns: those of a higher weight are left out first in a narrow terminal.
	weight int
	text   func(*Row) string
	order  func(a, b *Row) int // ascending
}

// columns returns the columns in their order.
func columns() []column {
	number := func(title string, weight int, value func(*Row) float64, format func(float64) string) column {
		return column{
			title, weight, func(r *Row) string {
				if value(r) < 0 {
					return "-"
				}
				return format(value(r))
			}, func(a, b *Row) int { return cmp.Compare(value(a), value(b)) },
		}
	}
	text := func(title string, weight int, value func(*Row) string) column {
		return column{title, weight, value, func(a, b *Row) int { return cmp.Compare(value(a), value(b)) }}
	}
	return []column{
		text("MODEL", 0, func(r *Row) string { return r.Name }),
		text("VER", 8, func(r *Row) string { return r.Version }),
		text("STATE", 7, func(r *Row) string { return r.State }),
		text("PLATFORM", 12, func(r *Row) string { return r.Platform }),
		text("INSTANCES", 11, func(r *Row) string { return r.Instances }),
		number("REQ/S", 1, func(r *Row) float64 { return r.Rate }, rateText),
		number("ERR/S", 4, func(r *Row) float64 { return r.Errors }, rateText),
		number("P50", 5, func(r *Row) float64 { return float64(r.P50) }, timeText),
		number("P99", 2, func(r *Row) float64 { return float64(r.P99) }, timeText),
		number("MEAN", 3, func(r *Row) float64 { return float64(r.Mean) }, timeText),
		number("QUEUE", 6, func(r *Row) float64 { return float64(r.Queue) }, timeText),
		number("COMPUTE", 9, func(r *Row) float64 { return float64(r.Compute) }, timeText),
		number("WAIT", 10, func(r *Row) float64 { return float64(r.Waiting) }, func(v float64) string { return strconv.Itoa(int(v)) }),
		number("BATCH", 6, func(r *Row) float64 { return float64(r.Batch) }, func(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }),
	}
}

// Columns returns the titles of the columns.
func Columns() []string {
	var names []string
	for _, c := range columns() {
		names = append(names, c.title)
	}
	return names
}

// Sort orders rows by a column, in descending order if so wanted; equal ones by their names.
func Sort(rows []Row, title string, descending bool) {
	all := columns()
	i := max(0, slices.IndexFunc(all, func(c column) bool { return c.title == title }))
	slices.SortStableFunc(rows, func(a, b Row) int {
		n := all[i].order(&a, &b)
		if descending {
			n = -n
		}
		return cmp.Or(n, cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version))
	})
}

// Filter returns the rows whose names have a text in them, whatever the case.
func Filter(rows []Row, text string) []Row {
	text = strings.ToLower(text)
	return slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return !strings.Contains(strings.ToLower(r.Name), text) })
}

// Table returns rows as text, under a heading.
func Table(rows []Row) [][]string {
	all := columns()
	list := [][]string{Columns()}
	for i := range rows {
		var cells []string
		for _, c := range all {
			cells = append(cells, c.text(&rows[i]))
		}
		list = append(list, cells)
	}
	return list
}

// Totals describes the server between two samples, in parts. For example: "tutti 0.1.0", "up 3m0s", "12 requests/s".
func Totals(before, after *Sample, rows []Row) []string {
	var parts []string
	if v := after.Server; v != nil {
		parts = append(parts, clean(v.Name+" "+v.Version), "up "+time.Duration((v.NowUs-v.StartedUs)*1000).Round(time.Second).String())
		if !v.Ready {
			parts = append(parts, "not ready")
		}
	}
	total, errors := 0.0, 0.0
	for i := range rows {
		total, errors = total+rows[i].Rate, errors+rows[i].Errors
	}
	parts = append(parts, table.Count(len(rows), "model"), rateText(total)+" req/s", rateText(errors)+" err/s")
	v := after.Server
	if v == nil {
		return parts
	}
	if was := before.Server; was != nil && v.NowUs > was.NowUs {
		parts = append(parts, fmt.Sprintf("CPU %.2f of %d", (v.CPUSeconds-was.CPUSeconds)/(float64(v.NowUs-was.NowUs)/1e6), v.Cores))
	}
	parts = append(parts, fmt.Sprintf("%d MiB", v.Memory>>20))
	for i, g := range v.GPUs {
		text := fmt.Sprintf("GPU %d", i)
		if g.Utilization != nil {
			text += fmt.Sprintf(" %.0f %%", 100**g.Utilization)
		}
		if g.MemoryUsed != nil && g.MemoryTotal != nil {
			text += fmt.Sprintf(" %.1f of %.1f GiB", *g.MemoryUsed/(1<<30), *g.MemoryTotal/(1<<30))
		}
		parts = append(parts, text)
	}
	return parts
}

// rateText formats a number per second.
func rateText(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'f', 1, 64)
}

// timeText formats microseconds.
func timeText(us float64) string {
	switch {
	case us >= 1e6:
		return strconv.FormatFloat(us/1e6, 'f', 2, 64) + "s"
	case us >= 1e3:
		return strconv.FormatFloat(us/1e3, 'f', 2, 64) + "ms"
	}
	return strconv.FormatFloat(us, 'f', 0, 64) + "us"
}

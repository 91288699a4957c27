package monitor_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/monitor"
)

// stats returns the statistics of a model after n requests that took 1 ms each, half of it in the queue, two in a batch.
func stats(name string, n, failed uint64) infer.Statistics {
	d := func(ns uint64) infer.Duration { return infer.Duration{Count: n, Ns: n * ns} }
	return infer.Statistics{
		Name: name, Version: "1", InferenceCount: n, ExecutionCount: n / 2,
		Inference: infer.InferenceStats{Success: d(1e6), Queue: d(5e5), ComputeInfer: d(4e5), Fail: infer.Duration{Count: failed}},
	}
}

// samples returns two samples that are 2 s apart, of a server with a busy, a slow, an idle and a failed model.
func samples() (before, after *monitor.Sample) {
	at := time.Unix(1e9, 0)
	busy := 0.75
	before = &monitor.Sample{
		At: at, Statistics: []infer.Statistics{stats("busy", 100, 0), stats("slow", 10, 0), stats("idle", 5, 0)},
		Server: &inspect.ServerView{NowUs: 1e6, CPUSeconds: 1},
	}
	after = &monitor.Sample{
		At: at.Add(2 * time.Second), Statistics: []infer.Statistics{stats("busy", 300, 0), stats("slow", 20, 4), stats("idle", 5, 0)},
		Index: []infer.Entry{
			{Name: "busy", Version: "1", State: infer.Ready},
			{Name: "slow", Version: "1", State: infer.Ready},
			{Name: "idle", Version: "1", State: infer.Ready},
			{Name: "broken\x1b[2J", Version: "1", State: infer.Unavailable, Reason: "no file"},
			{Name: "never"},
		},
		Models: []inspect.ModelView{{Name: "busy", Version: "1", Platform: "ensemble", Queue: 3, P50Ns: 9e5, P99Ns: 2e6}},
		Server: &inspect.ServerView{
			Name: "tutti", Version: "1.0", NowUs: 3e6, CPUSeconds: 2, Cores: 4, Memory: 10 << 20, Ready: true,
			GPUs: []inspect.GPUView{{Utilization: &busy}},
		},
		Instances: map[string]string{"busy": "2 CPU"},
	}
	return before, after
}

func TestRows(t *testing.T) {
	t.Parallel()
	rows := monitor.Rows(samples())
	monitor.Sort(rows, "REQ/S", true)
	want := []monitor.Row{
		{
			Name: "busy", Version: "1", State: "READY", Platform: "ensemble", Rate: 100, P50: 900, P99: 2000, Mean: 1000, Queue: 500, Compute: 400,
			Waiting: 3, Batch: 2, Instances: "2 CPU", Requests: 300,
		},
		{Name: "slow", Version: "1", State: "READY", Rate: 5, Errors: 2, P50: -1, P99: -1, Mean: 1000, Queue: 500, Compute: 400, Waiting: -1, Batch: 2, Requests: 20},
		{Name: "broken?[2J", Version: "1", State: "UNAVAILABLE", Reason: "no file", P50: -1, P99: -1, Mean: -1, Queue: -1, Compute: -1, Waiting: -1, Batch: -1},
		{Name: "idle", Version: "1", State: "READY", P50: -1, P99: -1, Mean: -1, Queue: -1, Compute: -1, Waiting: -1, Batch: -1, Requests: 5},
	}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	text, err := json.Marshal(rows[3])
	if err != nil || !strings.Contains(string(text), `"p50_us":null`) || !strings.Contains(string(text), `"rate":0`) {
		t.Errorf("%s, %v", text, err)
	}
}

func TestOrder(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		column string
		down   bool
		filter string
		want   string
	}{
		{"MODEL", false, "", "broken?[2J busy idle slow"},
		{"MODEL", true, "", "slow idle busy broken?[2J"},
		{"ERR/S", true, "", "slow broken?[2J busy idle"},
		{"P99", true, "", "busy broken?[2J idle slow"},
		{"REQ/S", true, "S", "busy slow"},
		{"REQ/S", true, "none", ""},
	} {
		rows := monitor.Filter(monitor.Rows(samples()), tt.filter)
		monitor.Sort(rows, tt.column, tt.down)
		var names []string
		for _, r := range rows {
			names = append(names, r.Name)
		}
		if got := strings.Join(names, " "); got != tt.want {
			t.Errorf("%+v: %s", tt, got)
		}
	}
}

func TestTotals(t *testing.T) {
	t.Parallel()
	before, after := samples()
	got := strings.Join(monitor.Totals(before, after, monitor.Rows(before, after)), ", ")
	if want := "tutti 1.0, up 3s, 4 models, 105 req/s, 2.0 err/s, CPU 0.50 of 4, 10 MiB, GPU 0 75 %"; got != want {
		t.Errorf("%s, expected %s", got, want)
	}
	after.Server = nil
	if got := strings.Join(monitor.Totals(before, after, nil), ", "); got != "0 models, 0 req/s, 0 err/s" {
		t.Errorf("without a dashboard: %s", got)
	}
}

// TestLines checks that a view fits into terminals of any size, and what is left out first.
func TestLines(t *testing.T) {
	t.Parallel()
	before, after := samples()
	for width := 0; width < 150; width += 1 + width/8 {
		for height := range 9 {
			for _, v := range []monitor.View{{}, {Typing: true, Filter: "b"}, {Problem: strings.Repeat("ä", 200)}, {Top: 100}, {Top: -3, Filter: "none"}} {
				v.Before, v.After, v.Column = before, after, "REQ/S"
				lines := v.Lines(width, height)
				if len(lines) > height || width > 0 && height > 0 && len(lines) == 0 {
					t.Fatalf("%d x %d: %d lines", width, height, len(lines))
				}
				for _, l := range lines {
					if utf8.RuneCountInString(l.Text) > width {
						t.Fatalf("%d x %d: a line of %d characters: %s", width, height, len(l.Text), l.Text)
					}
				}
			}
		}
	}
	v := monitor.View{Before: before, After: after, Column: "REQ/S"}
	for _, tt := range []struct {
		width, height int
		want          string
	}{
		{20, 1, "busy 100"},
		{24, 3, "MODEL REQ/Sv | busy 100 | slow 5.0"},
		{28, 3, "MODEL REQ/Sv P99 | busy 100 2.00ms | slow 5.0 -"},
	} {
		var text []string
		for _, l := range v.Lines(tt.width, tt.height) {
			text = append(text, strings.Join(strings.Fields(l.Text), " "))
		}
		if got := strings.Join(text, " | "); got != tt.want {
			t.Errorf("%d x %d: %s, expected %s", tt.width, tt.height, got, tt.want)
		}
	}
}

// TestScroll checks that the last row is reached, and no further.
func TestScroll(t *testing.T) {
	t.Parallel()
	s := &monitor.Sample{}
	for i := range 50 {
		s.Statistics = append(s.Statistics, infer.Statistics{Name: fmt.Sprintf("m%02d", i), Version: "1"})
	}
	v := monitor.View{Before: s, After: s, Column: "MODEL", Ascending: true, Top: 1000}
	lines := v.Lines(80, 10)
	if last := lines[len(lines)-2].Text; !strings.HasPrefix(last, "m49") || v.Top != 50-(10-3) {
		t.Errorf("the last row is '%s', and the first is number %d", last, v.Top)
	}
}

package benchmark_test

import (
	"bytes"
	"context"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/benchmark"
)

func TestStudent(t *testing.T) {
	t.Parallel()
	for freedom, want := range map[int]float64{1: 12.7062, 4: 2.7764, 5: 2.5706, 9: 2.2622, 29: 2.0452, 1000: 1.9623} {
		if got := benchmark.StudentT(freedom); math.Abs(got-want) > 0.002*want {
			t.Errorf("%d degrees of freedom: %v, expected %v", freedom, got, want)
		}
	}
}

// TestPairedRatio checks the ratio of noisy pairs, and that 95 % of the intervals have the true ratio in them.
func TestPairedRatio(t *testing.T) {
	t.Parallel()
	if r, ok := benchmark.PairedRatio([]float64{2, 8}, []float64{1, 2}); !ok || math.Abs(r.Value-math.Sqrt(8)) > 1e-9 {
		t.Errorf("%+v, expected the geometric mean of 2 and 4", r)
	}
	for _, pair := range [][2][]float64{{{1}, {1}}, {{1, 2}, {1}}, {{1, 0}, {1, 1}}, {nil, nil}} {
		if r, ok := benchmark.PairedRatio(pair[0], pair[1]); ok {
			t.Errorf("%v has the ratio %+v", pair, r)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	const tries = 4000
	for _, rounds := range []int{3, 10} {
		inside := 0
		for range tries {
			var a, b []float64
			for range rounds {
				machine := math.Exp(0.3 * random.NormFloat64()) // the noise that both sides share
				a = append(a, 1.5*machine*math.Exp(0.05*random.NormFloat64()))
				b = append(b, machine*math.Exp(0.05*random.NormFloat64()))
			}
			if r, ok := benchmark.PairedRatio(a, b); ok && r.Low <= 1.5 && 1.5 <= r.High {
				inside++
			}
		}
		if share := float64(inside) / tries; share < 0.935 || share > 0.965 {
			t.Errorf("%d rounds: %v of the intervals have the ratio in them", rounds, share)
		}
	}
}

// TestCompare checks that rounds alternate and that the ratio is that of the rounds.
func TestCompare(t *testing.T) {
	t.Parallel()
	var order []string // written by one side at a time
	var sides [2]*benchmark.Side
	for i, name := range []string{"a", "b"} {
		s, _ := open(t, benchmark.Load{Clients: 1}, func(w http.ResponseWriter, r *http.Request) {
			if len(order) == 0 || order[len(order)-1] != name {
				order = append(order, name)
			}
			respond(w, r)
		})
		sides[i] = &benchmark.Side{Name: name, Session: s}
	}
	rounds := 0
	c, err := benchmark.Compare(t.Context(), sides[0], sides[1], &benchmark.Rounds{
		Count: 4, Length: 20 * time.Millisecond, Progress: func(int, *benchmark.Round, *benchmark.Round) { rounds++ },
	})
	if err != nil || rounds != 4 || len(c.Rounds[0]) != 4 || len(c.Rounds[1]) != 4 || len(c.Ratios) != 4 {
		t.Fatalf("%+v, %v", c, err)
	}
	// a b, b a, a b, b a: neighbours of the same side are one entry.
	if diff := cmp.Diff([]string{"a", "b", "a", "b", "a"}, order); diff != "" {
		t.Errorf("order: %s", diff)
	}
	for _, r := range c.Ratios {
		if r.Low > r.Value || r.Value > r.High {
			t.Errorf("%+v", r)
		}
	}
}

func TestCompareInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	var sides [2]*benchmark.Side
	for i := range sides {
		s, _ := open(t, benchmark.Load{Clients: 1}, respond)
		sides[i] = &benchmark.Side{Session: s}
	}
	c, err := benchmark.Compare(ctx, sides[0], sides[1], &benchmark.Rounds{
		Count: 1000, Length: 10 * time.Millisecond, Progress: func(round int, _, _ *benchmark.Round) {
			if round == 2 {
				cancel()
			}
		},
	})
	if err != nil || len(c.Rounds[0]) != 2 || !c.Sides[0].Interrupted {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestSteps(t *testing.T) {
	t.Parallel()
	stats := func(n uint64) infer.Statistics {
		d := func(ns uint64) infer.Duration { return infer.Duration{Count: n, Ns: n * ns} }
		return infer.Statistics{
			Name: "m", Version: "1", InferenceCount: 8 * n, ExecutionCount: 2 * n,
			Inference: infer.InferenceStats{Success: d(9000), Fail: infer.Duration{Count: n / 10}, Queue: d(1000), ComputeInput: d(2000), ComputeInfer: d(3000), ComputeOutput: d(1500)},
		}
	}
	idle := infer.Statistics{Name: "idle", Version: "1"}
	want := []benchmark.Step{{
		Model: "m", Version: "1", Requests: 90, Failed: 9, Total: 9, Queue: 1, Input: 2, Infer: 3, Output: 1.5, Batch: 4, Executions: 180,
	}}
	if diff := cmp.Diff(want, benchmark.Steps([]infer.Statistics{stats(10), idle}, []infer.Statistics{stats(100), idle})); diff != "" {
		t.Error(diff)
	}
	// A model that was loaded again starts at zero.
	if got := benchmark.Steps([]infer.Statistics{stats(100)}, []infer.Statistics{stats(10)}); len(got) != 1 || got[0].Requests != 10 {
		t.Errorf("%+v", got)
	}
}

// TestReportPage checks that the page is whole, needs nothing from elsewhere, and escapes texts of servers.
func TestReportPage(t *testing.T) {
	t.Parallel()
	evil := `<script>alert("1")</script>`
	result := func(clients int) *benchmark.Result {
		return &benchmark.Result{
			Clients: clients, Seconds: 3, Requests: 300, Throughput: float64(100 * clients), Latency: benchmark.Latency{Mean: 10, P50: 9, P99: 20},
			Failed: 1, Failures: []benchmark.Failures{{Kind: evil, Count: 1, Example: evil}},
			Quantiles: []benchmark.Quantile{{Quantile: 0, Micros: 1}, {Quantile: 0.5, Micros: 9}, {Quantile: 0.99, Micros: 20}},
			Points:    []benchmark.Point{{At: 1, Throughput: 100, P50: 9, P99: 20}, {At: 2}, {At: 3, Throughput: 90, P50: 9, P99: 20}},
			Steps:     []benchmark.Step{{Model: evil, Requests: 300, Total: 8}},
		}
	}
	sweep := &benchmark.Report{Model: evil, URL: evil, Results: []*benchmark.Result{result(1), result(8)}}
	empty := &benchmark.Report{Model: "m", Results: []*benchmark.Result{{Clients: 1}}}
	compared := &benchmark.Report{Model: "m", Comparison: &benchmark.Comparison{
		Names: [2]string{evil, "b"}, Sides: [2]*benchmark.Result{result(1), result(1)}, Ratios: []benchmark.RatioOf{{Figure: "p99", Ratio: benchmark.Ratio{Value: 1.25, Low: 1.2, High: 1.3}}},
	}}
	for _, tt := range []struct {
		name  string
		r     *benchmark.Report
		plots int
	}{{"sweep", sweep, 4}, {"empty", empty, 3}, {"compared", compared, 3}} {
		var b bytes.Buffer
		if err := tt.r.HTML(&b); err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		page := b.String()
		root, err := html.Parse(strings.NewReader(page))
		if err != nil {
			t.Fatal(err)
		}
		plots := 0
		for n := range root.Descendants() {
			if n.Type != html.ElementNode {
				continue
			}
			if n.Data == "svg" {
				plots++
			}
			for _, a := range n.Attr {
				if n.Data == "script" || n.Data == "link" || n.Data == "img" || a.Key == "src" || a.Key == "href" {
					t.Errorf("%s: <%s %s=%s> needs another file, or was not escaped", tt.name, n.Data, a.Key, a.Val)
				}
			}
		}
		if plots != tt.plots || strings.Contains(page, evil) || strings.Contains(page, "NaN") || strings.Contains(page, "Inf") {
			t.Errorf("%s: %d plots, expected %d, in\n%s", tt.name, plots, tt.plots, page)
		}
	}
}

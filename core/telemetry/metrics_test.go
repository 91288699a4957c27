package telemetry_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"tutti/core/goldentest"
	"tutti/core/telemetry"
	"tutti/core/tensor"
)

// exporter returns metrics of one busy and one idle model, in a strict registry.
func exporter(t *testing.T) (*telemetry.Metrics, *prometheus.Registry) {
	t.Helper()
	x := telemetry.NewMetrics()
	busy := &telemetry.Model{Name: "busy", Version: 3}
	times := &telemetry.Times{Start: 10_000, InputEnd: 21_000, InferEnd: 333_999, End: 340_000}
	for _, rows := range []int{2, 70} {
		busy.Executed(rows+1, times)
		busy.Succeeded(rows, 4_000, times)
		busy.Succeeded(1, 8_500, times)
	}
	busy.Failed(telemetry.Backend, 1)
	busy.Queued(5)
	device := tensor.Place{Kind: tensor.Device}
	for range 2 {
		busy.Moves.Count("x", tensor.Place{}, device, telemetry.ForDevice, 12)
	}
	busy.Moves.Count("y", device, tensor.Place{Kind: tensor.Pinned}, telemetry.ForResponse, 8)
	x.Add(busy)
	x.Add(&telemetry.Model{Name: "idle", Version: 1})
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(x)
	return x, r
}

func scrape(t *testing.T, r *prometheus.Registry) string {
	t.Helper()
	w := httptest.NewRecorder()
	promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func TestMetricsText(t *testing.T) {
	t.Parallel()
	_, r := exporter(t)
	goldentest.Check(t, "testdata/metrics.txt", []byte(scrape(t, r)))
}

func TestMetricsRemove(t *testing.T) {
	t.Parallel()
	x, r := exporter(t)
	m := &telemetry.Model{Name: "again", Version: 2}
	for range 2 { // one loaded again has its own counters
		x.Add(m)
		x.Add(m)
		if got := scrape(t, r); !strings.Contains(got, `nv_inference_count{model="again",version="2"} 0`) {
			t.Errorf("not exported:\n%s", got)
		}
		x.Remove(m)
		x.Remove(m)
		if got := scrape(t, r); strings.Contains(got, "again") || !strings.Contains(got, "idle") {
			t.Errorf("removed one, and these are left:\n%s", got)
		}
		m = &telemetry.Model{Name: "again", Version: 2}
	}
}

// TestMetricsLabels scrapes models of names that labels may not have as they are.
func TestMetricsLabels(t *testing.T) {
	t.Parallel()
	for name, label := range map[string]string{"a\"b\\c\nd": `a\"b\\c\nd`, "a\xffb": "a\uFFFDb", "": ""} {
		x, r := telemetry.NewMetrics(), prometheus.NewPedanticRegistry()
		x.Add(&telemetry.Model{Name: name, Version: 1})
		r.MustRegister(x)
		if want, got := `nv_inference_count{model="`+label+`",version="1"} 0`, scrape(t, r); !strings.Contains(got, want) {
			t.Errorf("%q: no line %s in\n%s", name, want, got)
		}
	}
}

// fetches returns a registry of metrics without a model.
func fetches(t *testing.T, x *telemetry.Metrics) *prometheus.Registry {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	if err := r.Register(x); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestMetricsPage writes the reference page from what the exporter declares.
func TestMetricsPage(t *testing.T) {
	t.Parallel()
	_, r := exporter(t)
	x := telemetry.NewMetrics()
	x.Fetched(1, 1)
	padded := &telemetry.Model{Name: "m", Version: 1}
	padded.Padded(1, 1)
	x.Add(padded)
	families, err := prometheus.Gatherers{r, fetches(t, x)}.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("# Metrics\n\nWritten by `make golden` from the declaration in `core/telemetry/metrics.go`.\n\n" +
		"`GET /metrics` on the metrics port (8002) answers in the Prometheus text format. Ensembles are models here as their " +
		"steps are. Counters start at 0 when a model is loaded. The Go runtime's `go_*` and the process's `process_*` metrics " +
		"stand beside these.\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n")
	for _, f := range families {
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, "`"+l.GetName()+"`")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.GetName(), strings.ToLower(f.GetType().String()), strings.Join(labels, " "), f.GetHelp())
	}
	b.WriteString("\nWith `--model-namespacing=true` the metrics of models have the label `namespace` too, the model's repository. " +
		"Those of fetching appear when a model was fetched, those of padding when a batch of it was padded, those of moves when a tensor was copied to or from a device: " +
		"`tensor` is the input that a step read or the output that was answered, and `reason` one of")
	for _, r := range []telemetry.MoveReason{telemetry.ForDevice, telemetry.ForHost, telemetry.ForPeer, telemetry.ForResponse, telemetry.ForBatch} {
		fmt.Fprintf(&b, " `%s`", r)
	}
	b.WriteString(".\n")
	b.WriteString("\n`reason` of failures is one of")
	for r := range (&telemetry.Model{}).Failures {
		fmt.Fprintf(&b, " `%s`", telemetry.Reason(r))
	}
	b.WriteString(".\n")
	goldentest.Check(t, "../../docs/metrics.md", []byte(b.String()))
}

package telemetry_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/goldentest"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// exporter returns metrics of one busy and one idle model, in a strict registry.
func exporter(t *testing.T) *telemetry.Metrics {
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
		busy.Copies.Count("x", tensor.Place{}, device, telemetry.ForDevice, 1, 12)
	}
	busy.Copies.Count("y", device, tensor.Place{Kind: tensor.Pinned}, telemetry.ForResponse, 1, 8)
	x.Add(busy)
	x.Add(&telemetry.Model{Name: "idle", Version: 1})
	return x
}

func scrape(t *testing.T, x *telemetry.Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	telemetry.Handler(x, nil).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func TestMetricsText(t *testing.T) {
	t.Parallel()
	goldentest.Check(t, "testdata/metrics.txt", []byte(scrape(t, exporter(t))))
}

func TestMetricsRemove(t *testing.T) {
	t.Parallel()
	x := exporter(t)
	m := &telemetry.Model{Name: "again", Version: 2}
	for range 2 { // one loaded again has its own counters
		x.Add(m)
		x.Add(m)
		if got := scrape(t, x); !strings.Contains(got, `nv_inference_count{model="again",version="2"} 0`) {
			t.Errorf("not exported:\n%s", got)
		}
		x.Remove(m)
		x.Remove(m)
		if got := scrape(t, x); strings.Contains(got, "again") || !strings.Contains(got, "idle") {
			t.Errorf("removed one, and these are left:\n%s", got)
		}
		m = &telemetry.Model{Name: "again", Version: 2}
	}
}

// TestMetricsLabels checks models whose names are invalid label values.
func TestMetricsLabels(t *testing.T) {
	t.Parallel()
	for name, label := range map[string]string{"a\"b\\c\nd": `a\"b\\c\nd`, "a\xffb": "a\uFFFDb", "": ""} {
		x := telemetry.NewMetrics()
		x.Add(&telemetry.Model{Name: name, Version: 1})
		if want, got := `nv_inference_count{model="`+label+`",version="1"} 0`, scrape(t, x); !strings.Contains(got, want) {
			t.Errorf("%q: no line %s in\n%s", name, want, got)
		}
	}
}

// TestEnsembleFailures checks that a failed ensemble request counts as in Triton.
func TestEnsembleFailures(t *testing.T) {
	t.Parallel()
	x, m := telemetry.NewMetrics(), &telemetry.Model{Name: "e", Version: 1}
	x.Add(m)
	m.Failed(telemetry.Other, 1)
	m.Failed(telemetry.Canceled, 1)
	for _, want := range []string{
		`nv_inference_request_failure{model="e",reason="OTHER",version="1"} 2`, `nv_inference_request_failure{model="e",reason="CANCELED",version="1"} 1`,
	} {
		if got := scrape(t, x); !strings.Contains(got, want+"\n") {
			t.Errorf("no line %s in\n%s", want, got)
		}
	}
}

// TestCachedSummaries checks that a model with a response cache has all summaries but
// that of the whole request, as in Triton.
func TestCachedSummaries(t *testing.T) {
	t.Parallel()
	x := telemetry.NewMetricsOf(telemetry.ExportOptions{Summaries: true})
	x.Cache(func() telemetry.CacheCounts { return telemetry.CacheCounts{} })
	for _, cached := range []bool{false, true} {
		m := &telemetry.Model{Name: fmt.Sprint("cached-", cached), Version: 1}
		m.Configure(&telemetry.Setup{Cached: cached})
		x.Add(m)
		m.Alone(1, 0, &telemetry.Times{Start: 1_000, InputEnd: 2_000, InferEnd: 4_000, End: 8_000})
		m.Hit(0, 3_000, 2_000)
	}
	got := scrape(t, x)
	for line, want := range map[string]bool{
		`nv_inference_request_summary_us_count{model="cached-false",version="1"} 2`: true,
		`nv_inference_request_summary_us_count{model="cached-true"`:                 false,
		`nv_inference_queue_summary_us_count{model="cached-true",version="1"} 1`:    true,
		`nv_cache_hit_summary_per_model_count{model="cached-true",version="1"} 1`:   true,
		`nv_cache_hit_summary_per_model_count{model="cached-false"`:                 false,
	} {
		if strings.Contains(got, line) != want {
			t.Errorf("%s in the metrics: %v, want %v", line, !want, want)
		}
	}
}

// everything returns an exporter of all families.
func everything(t *testing.T) *telemetry.Metrics {
	t.Helper()
	x := telemetry.NewMetricsOf(telemetry.ExportOptions{Summaries: true, Histograms: true, CPU: true, GPU: true})
	x.GPUs(func() []telemetry.GPU {
		return []telemetry.GPU{{UUID: "GPU-1", Utilization: 0.5, MemoryTotal: 100, MemoryUsed: 10, PowerUsage: 250, PowerLimit: 700, Energy: 12}}
	})
	x.Cache(func() telemetry.CacheCounts {
		return telemetry.CacheCounts{Sized: true, Util: 0.25, Entries: 3, Evictions: 1, Lookups: 9, Hits: 4, LookupNs: 7000, InsertNs: 9000}
	})
	x.Requests(func() (queued, running int64) { return 3, 4 })
	x.InFlight(load{})
	x.Refusals(func() (a, b, c uint64) { return 3, 2, 1 })
	x.Clients(func(add func(name string, n uint64)) { add("alice", 7) })
	x.Pinned(func() (int64, int64) { return 1 << 20, 1 << 10 })
	x.Devices(func() []telemetry.DeviceUse {
		return []telemetry.DeviceUse{{Place: tensor.Place{Kind: tensor.Device, ID: 1}, Lost: true, Spilled: 2}, {Place: tensor.Place{Kind: tensor.Pinned}, Spilled: 3}}
	})
	m := &telemetry.Model{Name: "m", Version: 1}
	m.SetLoad(func() telemetry.Load { return telemetry.Load{Running: 2, Wait: 30e6, Utilization: 0.5} })
	m.Configure(&telemetry.Setup{Tags: map[string]string{"team": "a"}, FirstResponse: []float64{1, 10}, Decoupled: true, Cached: true})
	x.Add(m)
	plain := &telemetry.Model{Name: "plain", Version: 1} // the summary of requests is of models without a cache
	x.Add(plain)
	plain.Alone(1, 0, &telemetry.Times{Start: 1_000, InputEnd: 2_000, InferEnd: 4_000, End: 8_000})
	m.Responded(5_000_000)
	m.Responded(50_000_000)
	m.Alone(1, 0, &telemetry.Times{Start: 1_000, InputEnd: 2_000, InferEnd: 4_000, End: 8_000})
	m.Hit(0, 3_000, 2_000)
	m.Missed(5_000)
	m.Padded(3, 1)
	m.Evictions.Add(1)
	m.Stuck.Add(1)
	m.Reloads.Add(1)
	m.Copies.Count("x", tensor.Place{}, tensor.Place{Kind: tensor.Device}, telemetry.ForDevice, 1, 12)
	x.Fetched(1, 1)
	m.Queued(3)
	m.Slack(500_000_000)
	m.Predicted(11, 10)
	m.Due(telemetry.InTime)
	m.Due(telemetry.Refused)
	m.Due(telemetry.Refused)
	m.Slack(-1)
	m.Refused(telemetry.QueueFull, 5)
	m.Exemplar("4bf92f3577b34da6a3ce929d0e0e4736", 3_000_000)
	step := m.Steps([]string{"detect"})[0]
	step.Done(0, &telemetry.Times{Start: 1_000, InputEnd: 1_000, InferEnd: 5_000, End: 5_000})
	carried := tensor.Tensor{Buf: buffer(t), Len: 12}
	m.RouteOf("step", "canary", "step:2").SetShare(0.05)
	m.RouteOf("step", "canary", "step:2").Succeeded.Add(1)
	m.ConditionOf("step").Held.Add(1)
	m.FanOutOf("step").Items.Add(1)
	m.ReplacementOf("step", "").Used.Add(1)
	m.ShadowOf("step", "step:2").Results[telemetry.ShadowEqual].Add(1)
	m.Edges([]string{"boxes"})[0].Carried(&carried)
	carried.Release()
	return x
}

func buffer(t *testing.T) *tensor.Buffer {
	t.Helper()
	b, err := tensor.NewPool().Alloc(12)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestEverything checks every label, value and quantile of an exporter with all families, with the reference
// parser, and checks the families beginning with ensemble_ with its linter.
func TestEverything(t *testing.T) {
	t.Parallel()
	x := everything(t)
	text := scrape(t, x)
	parser := expfmt.NewTextParser(model.LegacyValidation)
	read, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	for name, f := range read {
		if f.GetHelp() == "" || f.GetType() == dto.MetricType_UNTYPED {
			t.Errorf("%s has no help or type", name)
		}
	}
	for _, want := range []string{
		`nv_inference_first_response_histogram_ms_bucket{_team="a",model="m",version="1",le="10"} 1`,
		`nv_inference_first_response_histogram_ms_bucket{_team="a",model="m",version="1",le="+Inf"} 2`,
		`nv_inference_first_response_histogram_ms_sum{_team="a",model="m",version="1"} 55`,
		`nv_inference_request_summary_us{model="plain",version="1",quantile="0.999"}`,
		`nv_inference_request_summary_us_count{model="plain",version="1"} 1`,
		`nv_inference_compute_infer_summary_us_sum{_team="a",model="m",version="1"} 2`,
		`nv_cache_hit_summary_per_model_sum{_team="a",model="m",version="1"} 2`,
		`nv_cache_num_hits_per_model{_team="a",model="m",version="1"} 1`,
		`nv_cache_miss_duration_per_model{_team="a",model="m",version="1"} 5`,
		`nv_inference_request_failure{_team="a",model="m",reason="OTHER",version="1"} 0`,
		`nv_inference_request_success{_team="a",model="m",version="1"} 2`,
		`ensemble_copied_bytes_total{_team="a",direction="host_to_device",from="host",model="m",reason="device_step",tensor="x",to="device:0",version="1"} 12`,
		`ensemble_batch_size_bucket{_team="a",model="m",version="1",le="1"} 1`,
		`ensemble_latency_seconds_bucket{_team="a",model="m",phase="total",version="1",le="3.814697265625e-06"} 1`,
		`ensemble_latency_seconds_count{_team="a",model="m",phase="total",version="1"} 2`,
		`ensemble_latency_seconds_sum{_team="a",model="m",phase="total",version="1"} 1.1e-05`,
		`ensemble_node_latency_seconds_sum{_team="a",model="m",node="detect",phase="total",version="1"} 5e-06`,
		`ensemble_queue_depth_bucket{_team="a",model="m",version="1",le="4"} 1`,
		`ensemble_batch_padding_ratio_bucket{_team="a",model="m",version="1",le="0.25"} 1`,
		`ensemble_deadline_slack_seconds_bucket{_team="a",model="m",version="1",le="0"} 1`,
		`ensemble_deadline_requests_total{_team="a",model="m",outcome="in_time",version="1"} 1`,
		`ensemble_deadline_requests_total{_team="a",model="m",outcome="late",version="1"} 0`,
		`ensemble_deadline_requests_total{_team="a",model="m",outcome="refused",version="1"} 2`,
		`ensemble_deadline_prediction_ratio_bucket{_team="a",model="m",version="1",le="1"} 0`,
		`ensemble_deadline_prediction_ratio_bucket{_team="a",model="m",version="1",le="1.189207115002721"} 1`,
		`ensemble_deadline_prediction_ratio_sum{_team="a",model="m",version="1"} 1.1`,
		`ensemble_refusals_total{_team="a",model="m",reason="queue_full",version="1"} 1`,
		`ensemble_edge_bytes_total{_team="a",model="m",place="host",tensor="boxes",version="1"} 12`,
		`nv_gpu_utilization{gpu_uuid="GPU-1"} 0.5`, `nv_energy_consumption{gpu_uuid="GPU-1"} 12`,
		"ensemble_inflight_bytes 7", "ensemble_inflight_limit_bytes 9", "ensemble_inflight_refusals_total 3",
		`ensemble_model_evictions_total{_team="a",model="m",version="1"} 1`,
		"ensemble_requests_queued 3", "ensemble_requests_running 4",
		"nv_cache_util 0.25", "nv_cache_num_misses 5", "nv_pinned_memory_pool_used_bytes 1024", "nv_cpu_memory_total_bytes ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	problems, err := testutil.GatherAndLint(x)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if !strings.HasPrefix(p.Metric, "nv_") { // those are named by others
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

// load is what is in flight.
type load struct{}

func (load) Bytes() int64    { return 7 }
func (load) Limit() int64    { return 9 }
func (load) Refused() uint64 { return 3 }

// TestExportOptions checks the families that each option omits.
func TestExportOptions(t *testing.T) {
	t.Parallel()
	x := telemetry.NewMetricsOf(telemetry.ExportOptions{NoCounterLatencies: true})
	x.Add(&telemetry.Model{Name: "m", Version: 1})
	if got := scrape(t, x); strings.Contains(got, "duration_us") || strings.Contains(got, "summary") || strings.Contains(got, "_cache_") || !strings.Contains(got, "nv_inference_count") {
		t.Errorf("exported:\n%s", got)
	}
}

// TestReconfigured checks that a model with new labels continues its counts.
func TestReconfigured(t *testing.T) {
	t.Parallel()
	x, m := telemetry.NewMetrics(), &telemetry.Model{Name: "m", Version: 1}
	x.Add(m)
	m.Configure(&telemetry.Setup{Tags: map[string]string{"k": "v"}})
	x.Add(m)
	if want, got := `nv_inference_count{_k="v",model="m",version="1"} 0`, scrape(t, x); !strings.Contains(got, want) {
		t.Errorf("no %s in\n%s", want, got)
	}
}

// TestMetricsPage compares the reference page with the declared families.
func TestMetricsPage(t *testing.T) {
	t.Parallel()
	families, err := everything(t).Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("<!-- page run by TestMetricsPage -->\n# Metrics\n\nAfter this page you know what each metric counts and which labels it has. Written by `make golden` from the declaration in `internal/telemetry/metrics.go`.\n\n" +
		"`GET /metrics` on the metrics port (8002) responds in the Prometheus text format. An ensemble has the metrics of a model, and so does " +
		"each of its steps. Counters start at 0 when a model is loaded. The page also has the Go runtime's `go_*` and the process's `process_*` " +
		"metrics.\n\n| metric | type | labels | exported | meaning |\n|---|---|---|---|---|\n")
	for _, f := range families {
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			if l.GetName() != "_team" {
				labels = append(labels, "`"+l.GetName()+"`")
			}
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", f.GetName(), strings.ToLower(f.GetType().String()), strings.Join(labels, " "), telemetry.When(f.GetName()), f.GetHelp())
	}
	b.WriteString("\nWith `--model-namespacing=true` the metrics of models also have the label `namespace`, the model's repository. " +
		"A model's `metric_tags` are labels whose names start with an underscore; for example, the tag `team` is the label `_team`. Its " +
		"`model_metrics` set the buckets of `nv_inference_first_response_histogram_ms`; the default is 100, 500, 2000 and 5000. Summaries " +
		"cover the last minute, with the quantiles of `--metrics-config summary_quantiles`.\n\n" +
		"A request that waits for an identical request in flight counts as pending, and as a cache hit when it succeeds. An ensemble has no " +
		"queue: its requests are pending at the model of the step that they wait for. Each ensemble request is one execution of its rows, " +
		"whose phases are the sums over its steps.\n\n" +
		"At a GPU, `nv_inference_compute_*` and the phases `input`, `infer` and `output` are the GPU's own times, measured in its stream: `infer` is " +
		"the time of the model, without what waits before it there, and without the time in which the host launches it. They are counted when " +
		"the GPU has executed the batch. [gpu.md](gpu.md#batches-and-turns) has the details.\n\n" +
		"For copies, `tensor` is the input that a step read or the output of the response, and `reason` is one of")
	for _, r := range []telemetry.CopyReason{telemetry.ForDevice, telemetry.ForHost, telemetry.ForPeer, telemetry.ForResponse, telemetry.ForBatch, telemetry.ForCapture, telemetry.ForRows, telemetry.ForState, telemetry.ForProcess} {
		fmt.Fprintf(&b, " `%s`", r)
	}
	b.WriteString(".\n\n" +
		"`nv_gpu_*` and `nv_energy_consumption` are measured by NVIDIA's library `libnvidia-ml.so.1`; without it there are none. " +
		"The pool of pinned memory is empty without devices.\n\n" +
		"With models in processes of their own there are also `tutti_isolated_restarts_total` and `tutti_isolated_repeated_crashes_total`: see " +
		"[reliability.md](reliability.md#isolation).\n\n" +
		"Histograms whose names start with `ensemble_` are classic in the text formats; in the protobuf format they are also native (schema 2). " +
		"`phase` is one of `queue` `input` `infer` `output` `total`; a phase whose duration was always 0 has no metric, and `--metrics-config phase_histograms=false` " +
		"omits all of them. Steps of graphs of more than 64 nodes have the phase `total` only. " +
		"In OpenMetrics, which a client requests by its `Accept` header, `ensemble_latency_seconds` of the phase `total` has exemplars, whose " +
		"`trace_id` is that of a retained trace; counters whose names do not end in `_total` have the type unknown there, so that all names are unchanged. " +
		"Responses are never compressed.\n\n" +
		"The `reason` of refusals is one of")
	for r := telemetry.QueueFull; r <= telemetry.OverShare; r++ {
		fmt.Fprintf(&b, " `%s`", r)
	}
	b.WriteString(".\n\nThe `outcome` of requests with deadlines is one of")
	for o := telemetry.InTime; o <= telemetry.Unsuccessful; o++ {
		fmt.Fprintf(&b, " `%s`", o)
	}
	b.WriteString(": [deadlines.md](deadlines.md#what-the-server-shows) has what each means.\n")
	b.WriteString("\nThe `reason` of failures is one of")
	for r := range (&telemetry.Model{}).Failures {
		fmt.Fprintf(&b, " `%s`", telemetry.Reason(r))
	}
	b.WriteString(".\n")
	goldentest.Check(t, "../../docs/metrics.md", []byte(b.String()))
}

// BenchmarkScrape measures a scrape of 1,000 models.
func BenchmarkScrape(b *testing.B) {
	x := crowd()
	h := telemetry.Handler(x, nil)
	for name, accept := range map[string]string{
		"text":        "text/plain",
		"openmetrics": "application/openmetrics-text;version=1.0.0",
		"protobuf":    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited",
	} {
		b.Run(name, func(b *testing.B) {
			req := httptest.NewRequestWithContext(b.Context(), "GET", "/metrics", nil)
			req.Header.Set("Accept", accept)
			w := &discard{header: http.Header{}}
			for b.Loop() {
				w.n = 0
				h.ServeHTTP(w, req)
			}
			b.ReportMetric(float64(w.n), "bytes/op")
		})
	}
}

// crowd returns an exporter of 1,000 models with successful, batched and queued requests.
func crowd() *telemetry.Metrics {
	x := telemetry.NewMetrics()
	for i := range 1000 {
		m := &telemetry.Model{Name: fmt.Sprintf("model_%d", i), Version: 1}
		for k := range int64(20) {
			m.Queued(1)
			m.Executed(2, &telemetry.Times{Start: 1000 << k, InputEnd: 1100 << k, InferEnd: 2000 << k, End: 2100 << k})
			m.Succeeded(2, 0, &telemetry.Times{Start: 1000 << k, InputEnd: 1100 << k, InferEnd: 2000 << k, End: 2100 << k})
		}
		x.Add(m)
	}
	return x
}

// discard counts what is written to it.
type discard struct {
	header http.Header
	n      int
}

func (d *discard) Header() http.Header         { return d.header }
func (*discard) WriteHeader(int)               {}
func (d *discard) Write(p []byte) (int, error) { d.n += len(p); return len(p), nil }

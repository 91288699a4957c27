package telemetry_test

import (
	"math"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/tutti-server/tutti/internal/telemetry"
)

// natively returns the counts of a native histogram by number of the bucket.
func natively(h *dto.Histogram) map[int]int64 {
	got, k, n, at := map[int]int64{}, 0, int64(0), 0
	for _, s := range h.GetPositiveSpan() {
		k += int(s.GetOffset())
		for range s.GetLength() {
			n += h.GetPositiveDelta()[at]
			got[k] = n
			k, at = k+1, at+1
		}
	}
	return got
}

// find returns the histogram of the named family whose labels have the given value.
func find(t *testing.T, x *telemetry.Metrics, name, label string) *dto.Histogram {
	t.Helper()
	families, err := x.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == name && l.GetValue() == label {
					return m.GetHistogram()
				}
			}
		}
	}
	t.Fatalf("no %s of %s", name, label)
	return nil
}

// TestNativeBuckets compares buckets and counts with client_golang's native histograms, at bounds and beside them.
func TestNativeBuckets(t *testing.T) {
	t.Parallel()
	x, m := telemetry.NewMetrics(), &telemetry.Model{Name: "m", Version: 1}
	x.Add(m)
	want := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "h", Help: "H", NativeHistogramBucketFactor: 1.2, NativeHistogramZeroThreshold: 0x1p-128})
	for k := -60; k <= 20; k++ {
		for _, off := range []int64{-1, 0, 1} {
			ns := int64(math.Exp2(float64(k)/4)*1e9) + off
			if s := float64(ns) / 1e9; math.Abs(math.Log2(s)*4-math.Round(math.Log2(s)*4)) < 1e-9 {
				continue // on a bound but for rounding
			}
			m.Alone(1, 0, &telemetry.Times{InferEnd: ns, End: ns})
			want.Observe(float64(ns) / 1e9)
		}
	}
	var wrote dto.Metric
	if err := want.Write(&wrote); err != nil {
		t.Fatal(err)
	}
	if s := wrote.GetHistogram().GetSchema(); s != 2 {
		t.Fatalf("the reference has schema %d", s)
	}
	for _, phase := range []string{"total", "infer"} {
		h := find(t, x, "ensemble_latency_seconds", phase)
		got := natively(h)
		for k, n := range natively(wrote.GetHistogram()) {
			if got[k] != n {
				t.Errorf("%s: bucket %d has %d, want %d", phase, k, got[k], n)
			}
		}
		if h.GetSampleCount() != wrote.GetHistogram().GetSampleCount() || math.Abs(h.GetSampleSum()-wrote.GetHistogram().GetSampleSum()) > 1e-6 {
			t.Errorf("%s: count %d and sum %v, want %d and %v", phase, h.GetSampleCount(), h.GetSampleSum(), wrote.GetHistogram().GetSampleCount(), wrote.GetHistogram().GetSampleSum())
		}
		for _, b := range h.GetBucket() { // each classic bound is a native one
			sum := uint64(0)
			for k, n := range got {
				if math.Exp2(float64(k)/4) <= b.GetUpperBound()*(1+1e-9) {
					sum += uint64(n)
				}
			}
			if b.GetCumulativeCount() != sum {
				t.Errorf("%s: %d at most %v, want %d", phase, b.GetCumulativeCount(), b.GetUpperBound(), sum)
			}
		}
	}
}

// TestExtremes checks values beyond every bucket.
func TestExtremes(t *testing.T) {
	t.Parallel()
	x, m := telemetry.NewMetrics(), &telemetry.Model{Name: "m", Version: 1}
	x.Add(m)
	for _, ns := range []int64{0, 1, -5, math.MaxInt64} {
		m.Alone(1, 0, &telemetry.Times{InferEnd: ns, End: ns})
		m.Slack(ns)
		m.Predicted(ns, 1)
		m.Predicted(1, ns)
	}
	m.Queued(math.MaxInt32)
	h := find(t, x, "ensemble_latency_seconds", "total")
	if n := h.GetSampleCount(); n != 4 {
		t.Errorf("%d in all, want 4", n)
	}
	if last := h.GetBucket()[len(h.GetBucket())-1]; last.GetCumulativeCount() != 3 {
		t.Errorf("%d at most %v, want 3", last.GetCumulativeCount(), last.GetUpperBound())
	}
}

// TestOpenMetrics checks the exemplar and the names of counters.
func TestOpenMetrics(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"0.0.1", "1.0.0"} {
		req := httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil)
		req.Header.Set("Accept", "application/openmetrics-text;version="+version)
		w := httptest.NewRecorder()
		telemetry.Handler(everything(t), nil).ServeHTTP(w, req)
		text := w.Body.String()
		if kind := w.Header().Get("Content-Type"); !strings.HasPrefix(kind, "application/openmetrics-text") {
			t.Errorf("content type %s", kind)
		}
		for _, want := range []string{
			"# TYPE nv_inference_count unknown\n", "\nnv_inference_count{", "# TYPE ensemble_refusals counter\n", "\nensemble_refusals_total{",
			`le="0.00390625"} 2 # {trace_id="4bf92f3577b34da6a3ce929d0e0e4736"} 0.003 `, `le="1.0"} `,
		} {
			if !strings.Contains(text, want) {
				t.Errorf("no %s in\n%s", want, text)
			}
		}
		if !strings.HasSuffix(text, "\n# EOF\n") {
			t.Error("no end")
		}
	}
}

// TestProtobuf checks that the delimited format can be read back.
func TestProtobuf(t *testing.T) {
	t.Parallel()
	req := httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil)
	req.Header.Set("Accept", "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited")
	h := telemetry.Handler(everything(t), nil)
	for range 2 { // the second one uses the memory of the first
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		d, seen := expfmt.NewDecoder(w.Body, expfmt.ResponseFormat(w.Header())), false
		for {
			var f dto.MetricFamily
			if err := d.Decode(&f); err != nil {
				break
			}
			for _, m := range f.GetMetric() {
				if f.GetName() == "ensemble_latency_seconds" && m.GetHistogram().GetSchema() == 2 && len(m.GetHistogram().GetExemplars()) == 1 {
					seen = true
				}
			}
		}
		if !seen {
			t.Error("no native histogram with an exemplar")
		}
	}
}

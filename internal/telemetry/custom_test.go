package telemetry_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/expfmt"

	"github.com/tutti-server/tutti/internal/telemetry"
)

// exported returns the lines of the families whose name begins with custom.
func exported(t *testing.T, x *telemetry.Metrics) string {
	t.Helper()
	list, err := x.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, f := range list {
		if strings.HasPrefix(f.GetName(), "custom") {
			if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
				t.Fatal(err)
			}
		}
	}
	return b.String()
}

func TestCustom(t *testing.T) {
	t.Parallel()
	x := telemetry.NewMetrics()
	family := func(name string, kind telemetry.CustomKind) *telemetry.CustomFamily {
		f, err := x.Custom(name, "help", kind)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	metric := func(f *telemetry.CustomFamily, label string, buckets ...float64) *telemetry.CustomMetric {
		m, err := f.Metric(map[string]string{"l": label}, buckets)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	counter := metric(family("custom_count", telemetry.CustomCounter), "a")
	gauge := metric(family("custom_level", telemetry.CustomGauge), "b")
	histogram := metric(family("custom_sizes", telemetry.CustomHistogram), "c", 1, 10)
	for _, err := range []error{counter.Add(2), counter.Add(0.5), gauge.Set(3), gauge.Add(-1), histogram.Observe(1), histogram.Observe(5), histogram.Observe(50)} {
		if err != nil {
			t.Error(err)
		}
	}
	for what, err := range map[string]error{
		"negative increment": counter.Add(-1), "set of a counter": counter.Set(1), "observe of a gauge": gauge.Observe(1), "increment of a histogram": histogram.Add(1),
	} {
		if err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	want := `# HELP custom_count help
# TYPE custom_count counter
custom_count{l="a"} 2.5
# HELP custom_level help
# TYPE custom_level gauge
custom_level{l="b"} 2
# HELP custom_sizes help
# TYPE custom_sizes histogram
custom_sizes_bucket{l="c",le="1"} 1
custom_sizes_bucket{l="c",le="10"} 2
custom_sizes_bucket{l="c",le="+Inf"} 3
custom_sizes_sum{l="c"} 56
custom_sizes_count{l="c"} 3
`
	if diff := cmp.Diff(want, exported(t, x)); diff != "" {
		t.Errorf("exported (-want +got):\n%s", diff)
	}
	for _, m := range []*telemetry.CustomMetric{counter, gauge, histogram} {
		m.Drop()
	}
	if got := exported(t, x); got != "" {
		t.Errorf("after Drop there is still\n%s", got)
	}
}

func TestCustomRefused(t *testing.T) {
	t.Parallel()
	x := telemetry.NewMetrics()
	f, err := x.Custom("custom_count", "", telemetry.CustomCounter)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "9a", "a-b", "nv_inference_count", "custom_count"} {
		if _, err := x.Custom(name, "", telemetry.CustomGauge); err == nil {
			t.Errorf("family %q: no error", name)
		}
	}
	if _, err := f.Metric(map[string]string{"a b": "c"}, nil); err == nil {
		t.Error("label 'a b': no error")
	}
	again, err := x.Custom("custom_count", "", telemetry.CustomCounter)
	if err != nil || again != f {
		t.Errorf("the family again: %v, %v", again, err)
	}
}

// TestCustomBuckets checks that the bounds of a histogram must ascend.
func TestCustomBuckets(t *testing.T) {
	t.Parallel()
	f, err := telemetry.NewMetrics().Custom("custom_sizes", "", telemetry.CustomHistogram)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		buckets []float64
		ok      bool
	}{{[]float64{1, 2, 5}, true}, {[]float64{-1}, true}, {[]float64{1, 1, 2, 5, 5}, false}, {[]float64{2, 1}, false}, {[]float64{math.NaN()}, false}} {
		if _, err := f.Metric(map[string]string{"l": fmt.Sprint(tt.buckets)}, tt.buckets); (err == nil) != tt.ok {
			t.Errorf("buckets %v: %v", tt.buckets, err)
		}
	}
}

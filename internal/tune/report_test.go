package tune_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tutti-server/tutti/internal/tune"
)

// TestReportSaysWhatHolds checks the verdict: an advice that is good as measured, but not as predicted, names the prediction and
// what was measured. Where most processor time is outside the models the report says so.
func TestReportSaysWhatHolds(t *testing.T) {
	t.Parallel()
	const us, ms = time.Microsecond, time.Millisecond
	good := tune.Outcome{P50: ms, P99: 4 * ms, Throughput: 1000, CPU: 0.5}
	with := func(change func(*tune.Outcome)) tune.Outcome {
		o := good
		change(&o)
		return o
	}
	for name, c := range map[string]struct {
		predicted, measured tune.Outcome
		validated, holds    bool
		want                string
	}{
		"as predicted": {good, with(func(o *tune.Outcome) { o.P99 = 4500 * us }), true, true, "The advice holds: within 15 % of the predictions."},
		"another p99": {
			good, with(func(o *tune.Outcome) { o.P99 = 8 * ms }), true, false,
			"The advice does not hold: the predicted p99 is 50 % from its measurement, more than 15 %. What was measured is within the objective: 1000 requests/s with a p99 of 8ms. Rely on that, not on the predictions.",
		},
		"another p50":      {with(func(o *tune.Outcome) { o.P50 = 2 * ms }), good, true, false, "the predicted p50 is 100 % from its measurement"},
		"beyond":           {good, with(func(o *tune.Outcome) { o.P99 = 12 * ms }), false, false, "The advice does not hold: the p99 exceeds the objective. It took"},
		"not served":       {good, with(func(o *tune.Outcome) { o.Throughput = 800 }), false, false, "the server did not serve the rate. It took"},
		"nothing measured": {good, tune.Outcome{}, false, false, "the server did not serve the rate. It took"},
	} {
		a := tune.Candidate{Settings: []tune.Setting{{Instances: 1}}, Predicted: c.predicted, Measured: c.measured}
		r := tune.Report{Ensemble: "e", Objective: 10 * ms, Cores: 2, Network: oneModel(tune.NewCost(1, float64(100*us)), 0), Rate: 1000, Current: a, Advice: a}
		var b strings.Builder
		if err := r.Write(&b); err != nil {
			t.Fatal(err)
		}
		validated, _ := r.Validated()
		if holds, _ := r.Holds(); validated != c.validated || holds != c.holds || !strings.Contains(b.String(), c.want) {
			t.Errorf("%s: validated %v, holds %v, want '%s':\n%s", name, validated, holds, c.want, &b)
		}
	}
}

// TestReportOutside checks that the report says how much of the measured processor time was outside the models where it is most.
func TestReportOutside(t *testing.T) {
	t.Parallel()
	const us = time.Microsecond
	for _, c := range []struct {
		measured float64 // cores
		want     string
	}{
		{0.4, "A request took 400µs of processor time, predicted 200µs. 75 % of it was outside the models, mostly to wake threads"},
		{0.19, ""},
		{0, ""},
	} {
		a := tune.Candidate{
			Settings: []tune.Setting{{Instances: 1}}, Predicted: tune.Outcome{P99: us, Throughput: 1000, CPU: 0.2}, Measured: tune.Outcome{P99: us, Throughput: 1000, CPU: c.measured},
		}
		r := tune.Report{
			Ensemble: "e", Objective: time.Millisecond, Network: oneModel(tune.NewCost(1, float64(100*us)), 0), Rate: 1000, Current: a, Advice: a,
			Overhead: tune.Overhead{CPU: 100 * us},
		}
		var b strings.Builder
		if err := r.Write(&b); err != nil || !strings.Contains(b.String(), c.want) || c.want == "" && strings.Contains(b.String(), "outside the models") {
			t.Errorf("%v cores, error %v, want '%s':\n%s", c.measured, err, c.want, &b)
		}
	}
}

package config_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/config"
)

// TestMeanings checks the sentences about each parameter of an ensemble's data flow, and that a mistake has none.
func TestMeanings(t *testing.T) {
	t.Parallel()
	const steps = `platform: "ensemble"
input { name: "IN" data_type: TYPE_FP32 dims: 1 } output { name: "OUT" data_type: TYPE_FP32 dims: 1 }
ensemble_scheduling {
  step { model_name: "a" model_version: -1 input_map { key: "I" value: "IN" } output_map { key: "O" value: "x" } }
  step { model_name: "a" model_version: -1 input_map { key: "I" value: "x" } output_map { key: "O" value: "y" } }
  step { model_name: "b" model_version: -1 input_map { key: "I" value: "y" } output_map { key: "O" value: "z" } }
}
`
	for name, tc := range map[string]struct {
		params []string
		want   []string
	}{
		"all": {
			[]string{
				"ensemble.adapt", "true", "ensemble.first_of", `{"OUT": ["z", "y"]}`, "step.0.fallback", "c", "step.0.optional_result", `{"x": 0}`,
				"step.0.timeout_ms", "50", "step.1.optional_result", "absent", "step.b.adapt", "false", "step.b.breaker", `{"failures": 5}`,
				"step.b.constant", `{"N": 1}`, "step.b.parameters", `{"t": 1}`, "step.b.retries", "2", "step.b.when", "y[0] > 1",
			},
			[]string{
				"every step and output gets adapters where a tensor differs in type, layout or a leading dimension of 1",
				`each row of a tensor is that of the first tensor in its list that has the row: {"OUT": ["z", "y"]}`,
				"step 'a[0]' is replaced by the model 'c' when it fails",
				`step 'a[0]' has, when it fails, the values {"x": 0}, and no other outputs`,
				"step 'a[0]' fails when an attempt takes longer than 50 ms",
				"step 'a[1]' has no outputs when it fails, and its request goes on",
				"step 'b' gets no adapters",
				"step 'b' has a circuit breaker that opens after 5 failures in a row, probes after 1s",
				`step 'b' has the constant inputs {"N": 1}`,
				`step 'b' sees the request parameters {"t": 1} over those of the request`,
				"step 'b' is executed again after a failure, at most 2 times",
				"step 'b' runs for the rows for which y[0] > 1",
			},
		},
		"whole requests": {
			[]string{"ensemble.canary", `{"model": "n"}`, "ensemble.shadow", `{"model": "n"}`},
			[]string{
				`the ensemble has a canary, whose share of the requests follows its results: {"model": "n"}`,
				`the ensemble has a shadow: a model that gets copies of requests, and whose responses are only compared: {"model": "n"}`,
			},
		},
		"a split of requests":        {[]string{"ensemble.split", `{"weights": {"m": 1, "n": 1}}`}, []string{`each request is executed by the ensemble itself or by another model: {"weights": {"m": 1, "n": 1}}`}},
		"a mistake in a whole split": {[]string{"ensemble.split", `{"weights": {"m": 1}}`}, nil},
		"items and models": {
			[]string{
				"ensemble.gather", `{"OUT": "z"}`, "ensemble.max_items", "8", "ensemble.max_items_in_flight", "16", "ensemble.slo_ms", "150", "step.0.demux", "x", "step.1.shadow", `{"model": "c"}`,
				"step.b.split", `{"weights": {"b": 1, "c": 1}}`,
			},
			[]string{
				`the rows of items are collected in one tensor again: {"OUT": "z"}`,
				"a request has at most 8 items in all its fan-outs",
				"at most 16 items are executed at a time",
				"a response is due 150 ms after its request has arrived",
				"step 'a[0]' writes items that become rows of their own: x",
				`step 'a[1]' has a shadow: a model that gets copies of requests, and whose responses are only compared: {"model": "c"}`,
				`step 'b' is executed by one of several models for each request: {"weights": {"b": 1, "c": 1}}`,
			},
		},
		"mistake": {[]string{"step.b.retries", "many"}, nil},
		"none":    {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := []byte(steps)
			for i := 0; i < len(tc.params); i += 2 {
				text = fmt.Appendf(text, "parameters { key: %q value { string_value: '%s' } }\n", tc.params[i], tc.params[i+1])
			}
			cfg, err := config.Parse("config.pbtxt", text)
			if err != nil {
				t.Fatal(err)
			}
			cfg.Name = "m"
			if d := cmp.Diff(tc.want, config.Meanings(cfg)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

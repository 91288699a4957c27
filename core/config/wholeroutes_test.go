package config_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/config"
)

// TestStepModels checks that the models of whole requests are among those that an ensemble needs, but not the ensemble itself: they are
// loaded with it.
func TestStepModels(t *testing.T) {
	t.Parallel()
	cfg, err := config.Parse("config.pbtxt", []byte(`name: "m" platform: "ensemble" max_batch_size: 8
input { name: "IN" data_type: TYPE_FP32 dims: [ 1, 2 ] reshape { shape: 2 } } output { name: "OUT" data_type: TYPE_FP32 dims: 2 }
ensemble_scheduling { step { model_name: "a" model_version: -1 input_map { key: "I" value: "IN" } output_map { key: "O" value: "OUT" } } }
parameters { key: "ensemble.shadow" value { string_value: '{"model": "copied"}' } }
parameters { key: "ensemble.split" value { string_value: '{"weights": {"m": 1, "next": 1, "old:3": 1}}' } }
parameters { key: "step.a.shadow" value { string_value: '{"model": "b"}' } }
`))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	for _, s := range config.StepModels(cfg) {
		got[s.GetModelName()] = s.GetModelVersion()
	}
	if d := cmp.Diff(map[string]int64{"a": -1, "b": -1, "copied": -1, "next": -1, "old": 3}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	inside := config.WithoutRoutes(cfg)
	if flow, problems := config.WholeFlowOf(inside); flow != nil || problems != nil || len(inside.GetParameters()) != 1 {
		t.Errorf("without routes: %v", inside.GetParameters())
	}
	if dims := inside.GetInput()[0].GetDims(); len(dims) != 1 || inside.GetInput()[0].GetReshape() != nil || len(cfg.GetInput()[0].GetDims()) != 2 {
		t.Errorf("the steps see dims %v, want those of reshape", dims)
	}
}

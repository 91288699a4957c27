package repository_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
)

const few = `
-- copy/1/ --
-- copy/5/ --
-- copy/config.pbtxt --
backend: "identity"
input { name: "INPUT0" data_type: TYPE_STRING dims: [ 2, -1 ] }
output { name: "OUTPUT0" data_type: TYPE_STRING dims: [ 2, -1 ] }
-- torn/3/ --
-- torn/config.pbtxt --
backend: "strange"
` + doubleModel

// TestAbsentModels pins the errors about models that do not serve, in Triton's words.
func TestAbsentModels(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.repo(t, folder(t, few))
	for _, tc := range []struct {
		model   string
		version int64
		code    status.Code
		want    string
		stats   string
	}{
		{"none", 0, status.InvalidArg, "Request for unknown model: 'none' is not found", "requested model 'none' is not available"},
		{"none", 1, status.InvalidArg, "Request for unknown model: 'none' is not found", "requested model 'none' is not available"},
		{"plain", 1, status.NotFound, "Request for unknown model: 'plain' version 1 is not found", "requested model version is not available for model 'plain'"},
		{"copy", 1, status.NotFound, "Request for unknown model: 'copy' version 1 is not found", "requested model version is not available for model 'copy'"},
		{"torn", 0, status.NotFound, "Request for unknown model: 'torn' has no available versions", "requested model 'torn' is not available"},
		{"torn", 3, status.Unavailable, "Request for unknown model: 'torn' version 3 is not at ready state", "requested model 'torn' is not available"},
		{"torn", 4, status.NotFound, "Request for unknown model: 'torn' version 4 is not found", "requested model 'torn' is not available"},
	} {
		_, metadata := r.Metadata(tc.model, tc.version)
		_, config := r.Config(tc.model, tc.version)
		_, plan := r.Plan(tc.model, tc.version)
		req := w.request(tc.model, 1)
		req.Version = tc.version
		_, submit := send(t.Context(), r, req)
		for what, err := range map[string]error{
			"ready": r.ModelReady(tc.model, tc.version), "metadata": metadata, "config": config, "plan": plan, "submit": submit,
		} {
			if err == nil || err.Error() != tc.want || status.CodeOf(err) != tc.code {
				t.Errorf("%s of %s version %d: %v (%v), want %q", what, tc.model, tc.version, err, status.CodeOf(err), tc.want)
			}
		}
		if _, err := r.Statistics(tc.model, tc.version); err == nil || err.Error() != tc.stats || status.CodeOf(err) != status.InvalidArg {
			t.Errorf("statistics of %s version %d: %v, want %q", tc.model, tc.version, err, tc.stats)
		}
	}
}

func TestMetadata(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.repo(t, folder(t, few+ensemble("ens", step("plain", "-1", "IN", "X"))))
	fp32 := func(name string) []infer.TensorMetadata {
		return []infer.TensorMetadata{{Name: name, Datatype: "FP32", Shape: []int64{-1, -1}}}
	}
	text := func(name string) []infer.TensorMetadata {
		return []infer.TensorMetadata{{Name: name, Datatype: "BYTES", Shape: []int64{2, -1}}}
	}
	for _, want := range []*infer.Metadata{
		{Name: "plain", Versions: []string{"2"}, Platform: "native", Inputs: fp32("IN"), Outputs: fp32("OUT")},
		{Name: "copy", Versions: []string{"5"}, Platform: "identity", Inputs: text("INPUT0"), Outputs: text("OUTPUT0")},
		{Name: "ens", Versions: []string{"1"}, Platform: "ensemble", Inputs: fp32("IN"), Outputs: fp32("X")},
	} {
		got, err := r.Metadata(want.Name, 0)
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Errorf("metadata, error %v (-want +got):\n%s", err, d)
		}
		if err := r.ModelReady(want.Name, 0); err != nil {
			t.Error(err)
		}
	}
	cfg, err := r.Config("plain", 2)
	if err != nil || cfg.GetName() != "plain" || len(cfg.GetInput()) != 1 || cfg.GetInput()[0].GetName() != "IN" {
		t.Errorf("completed configuration %v, %v", cfg, err)
	}
	if p, err := r.Plan("ens", 1); err != nil || !p.Ensemble || len(p.Nodes) != 1 {
		t.Errorf("plan %+v, %v", p, err)
	}
	for name, want := range map[string]string{"plain": "double", "copy": "identity", "none": ""} {
		if got := r.Kind(name); got != want {
			t.Errorf("model %s is of kind %q, want %q", name, got, want)
		}
	}
	if text, err := r.Stage("ens", "types"); err != nil || text == "" {
		t.Errorf("stage %q, %v", text, err)
	}
	if _, err := r.Stage("plain", "types"); err == nil || err.Error() != "model 'plain' is no ensemble that can be read" {
		t.Errorf("a stage of a plain model: %v", err)
	}
	if problems := r.Check("plain"); len(problems) != 0 {
		t.Errorf("problems of a good model: %v", problems)
	}
	if problems := r.Check("none"); problems != nil {
		t.Errorf("problems of no model: %v", problems)
	}
}

func TestStatistics(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.repo(t, folder(t, few+ensemble("ens", step("plain", "-1", "IN", "M"), step("plain", "-1", "M", "X"))))
	for range 3 {
		if got, err := send(t.Context(), r, w.request("ens", 1)); err != nil || got != 4 {
			t.Fatalf("got %v, %v", got, err)
		}
	}
	if _, err := send(t.Context(), r, w.request("copy", 1)); err == nil {
		t.Fatal("an invalid request succeeds")
	}
	all, err := r.Statistics("", 0)
	if err != nil {
		t.Fatal(err)
	}
	type row struct {
		Name, Version               string
		Inferences, Executions      uint64
		Succeeded, Failed, BatchOf1 uint64
	}
	var got []row
	for i := range all {
		s := &all[i]
		x := row{s.Name, s.Version, s.InferenceCount, s.ExecutionCount, s.Inference.Success.Count, s.Inference.Fail.Count, 0}
		for _, b := range s.Batches {
			if b.BatchSize == 1 {
				x.BatchOf1 = b.ComputeInfer.Count
			}
		}
		got = append(got, x)
		if served := s.InferenceCount > 0; (s.LastInference > 0) != served || (s.Inference.Success.Ns > 0) != served {
			t.Errorf("model %s: last inference %d, %d ns", s.Name, s.LastInference, s.Inference.Success.Ns)
		}
	}
	want := []row{{"copy", "5", 0, 0, 0, 0, 0}, {"ens", "1", 3, 3, 3, 0, 3}, {"plain", "2", 6, 6, 6, 0, 6}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("statistics (-want +got):\n%s", d)
	}
	one, err := r.Statistics("plain", 2)
	if d := cmp.Diff(all[2:], one, cmpopts.EquateEmpty()); d != "" || err != nil {
		t.Errorf("of one version, error %v (-want +got):\n%s", err, d)
	}
}

// TestMetrics checks that serving models are exported, and that nothing is after Close.
func TestMetrics(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r, err := w.open(t.Context(), folder(t, few))
	if err != nil {
		t.Fatal(err)
	}
	models := func() int {
		families, err := w.metrics.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "nv_inference_request_success" {
				return len(f.GetMetric())
			}
		}
		return 0
	}
	if n := models(); n != 2 {
		t.Errorf("%d models exported, want the 2 that serve", n)
	}
	if err := r.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if n := models(); n != 0 {
		t.Errorf("%d models exported after close", n)
	}
}

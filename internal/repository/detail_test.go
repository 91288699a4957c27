package repository_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/repository"
)

func detailOf(t *testing.T, r *repository.Repository, model string) *inspect.ModelDetail {
	t.Helper()
	d, err := r.Detail(t.Context(), model)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// changesOf returns the events of a model, newest first, as WHAT VERSIONS: CAUSE.
func changesOf(d *inspect.ModelDetail) (list []string) {
	for _, e := range d.Loads {
		list = append(list, e.What+" "+strings.Join(e.Versions, ",")+": "+e.Cause)
	}
	return list
}

// TestDetail checks what is known of models through loads, a failure, other instances and an unload.
func TestDetail(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	root := folder(t, pair+ensemble("ens", step("part", "-1", "IN", "M"), step("other", "-1", "M", "X")))
	r := w.explicit(t, root, "ens")
	d := detailOf(t, r, "part")
	if diff := changesOf(d); !slices.Equal(diff, []string{"loaded 1: an ensemble that calls it was loaded"}) {
		t.Errorf("part: %q", diff)
	}
	if !slices.Equal(d.UsedBy, []string{"ens"}) || d.Ensemble || d.Dir != filepath.Join(root, "part") || d.Changed || d.Override {
		t.Errorf("part: %+v", d)
	}
	if len(d.Versions) != 1 || d.Versions[0].State != "READY" || len(d.Versions[0].Instances) == 0 || d.Versions[0].Instances[0].Kind != "KIND_CPU" {
		t.Errorf("the versions of part: %+v", d.Versions)
	}
	var served, written map[string]any
	if err := json.Unmarshal(d.Served, &served); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(d.Written, &written); err != nil {
		t.Fatal(err)
	}
	if served["name"] != "part" || len(served["instance_group"].([]any)) != 1 || len(written["instance_group"].([]any)) != 0 {
		t.Errorf("served %s\nwritten %s", d.Served, d.Written)
	}
	if e := detailOf(t, r, "ens"); !e.Ensemble || e.Versions[0].Instances != nil || len(e.Loads) != 1 || e.Loads[0].Cause != "the server started" {
		t.Errorf("ens: %+v", e)
	}

	path := filepath.Join(root, "part", "config.pbtxt")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("backend: 7"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.Load(t.Context(), "part", infer.LoadOptions{}); err == nil {
		t.Error("a wrong configuration was loaded")
	}
	d = detailOf(t, r, "part")
	if list := changesOf(d); len(list) != 2 || list[0] != "kept 1: a request" || d.Loads[0].Reason == "" || !d.Changed || d.Written != nil || d.WrittenError == "" || d.Served == nil {
		t.Errorf("after a failed load: %q, %+v", list, d)
	}
	if err := os.WriteFile(path, append(good, "\ninstance_group { kind: KIND_CPU count: 3 }\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.Load(t.Context(), "part", infer.LoadOptions{}); err != nil {
		t.Fatal(err)
	}
	d = detailOf(t, r, "part")
	if list := changesOf(d); len(list) != 3 || list[0] != "updated 1: a request" || len(d.Versions[0].Instances) != 3 {
		t.Errorf("after other instances: %q, %+v", list, d.Versions)
	}
	if err := r.Unload(t.Context(), "part", false); err != nil {
		t.Fatal(err)
	}
	if list := changesOf(detailOf(t, r, "part")); len(list) != 4 || list[0] != "unloaded : a request" {
		t.Errorf("after unloading: %q", list)
	}
	if e := detailOf(t, r, "ens"); len(e.Loads) != 2 || e.Loads[0].What != "failed" || e.Loads[0].Cause != "a model that it calls changed" || !strings.Contains(e.Loads[0].Reason, "part") {
		t.Errorf("the ensemble of an unloaded model: %+v", e.Loads)
	}
}

// TestDetailOfOthers checks models that were never loaded, cannot be loaded, came with a request, or are unknown.
func TestDetailOfOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.explicit(t, folder(t, pair+"-- broken/config.pbtxt --\nbackend: \"identity\" max_batch_size: x\n-- broken/1/ --\n"), "part")
	if d := detailOf(t, r, "other"); len(d.Versions) != 0 || d.Written == nil || d.Served != nil || len(d.Loads) != 0 {
		t.Errorf("one that was never loaded: %+v", d)
	}
	if err := r.Load(t.Context(), "broken", infer.LoadOptions{}); err == nil {
		t.Error("a broken model was loaded")
	}
	if d := detailOf(t, r, "broken"); d.WrittenError == "" || len(d.Loads) != 1 || d.Loads[0].What != "failed" || !strings.Contains(d.Loads[0].Reason, "Expected integer") {
		t.Errorf("a broken one: %+v", d)
	}
	if err := r.Load(t.Context(), "part", infer.LoadOptions{Config: `{"backend": "identity", "max_batch_size": 4, "version_policy": {"latest": {"num_versions": 1}}, "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [1]}], "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [1]}]}`}); err != nil {
		t.Fatal(err)
	}
	if d := detailOf(t, r, "part"); !d.Override || d.Written != nil || !strings.Contains(d.WrittenError, "load request") || d.Changed {
		t.Errorf("one with a configuration of a request: %+v", d)
	}
	for _, name := range []string{"none", "", "..", "../" + "part", "<script>"} {
		if _, err := r.Detail(t.Context(), name); status.CodeOf(err) != status.NotFound {
			t.Errorf("%q: %v", name, err)
		}
	}
	for range 30 {
		_ = r.Load(t.Context(), "broken", infer.LoadOptions{})
	}
	if d := detailOf(t, r, "broken"); len(d.Loads) != 20 {
		t.Errorf("%d changes are retained, expected 20", len(d.Loads))
	}
}

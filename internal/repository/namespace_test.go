package repository_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/repository"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// triples configures a step that triples its input. Its output differs from that of "double", so it identifies the
// model that executed.
const triples = `backend: "native" max_batch_size: 8 parameters { key: "step" value { string_value: "triple" } }`

const ambiguity = "There are 2 identifiers of model 'part' in global map, model namespace must be provided to resolve ambiguity."

// spaces opens two folders as namespaces. Models called "part" double their input in the first and triple it in the
// second.
func spaces(t *testing.T, mode repository.Mode, one, two string) (w *world, r *repository.Repository, roots []string) {
	t.Helper()
	w = newWorld(t, stepOf("triple", true, scale(3)))
	w.metrics = telemetry.NewMetricsOf(telemetry.ExportOptions{Namespaces: true})
	if w.more.Mode, w.more.Namespacing = mode, true; mode == repository.Explicit {
		w.only = []string{}
	}
	roots = []string{folder(t, one), folder(t, two)}
	return w, w.repo(t, roots...), roots
}

func partOf(config string) string { return "-- part/1/ --\n-- part/config.pbtxt --\n" + config + "\n" }

func over(name, model string) string { return ensemble(name, step(model, "-1", "IN", "X")) }

// wantOutputs sends 1 to each model and compares the outputs, or the text of the error.
func wantOutputs(t *testing.T, w *world, r *repository.Repository, want map[string]any) {
	t.Helper()
	got := map[string]any{}
	for name := range want {
		v, err := send(t.Context(), r, w.request(name, 1))
		if got[name] = int(v); err != nil {
			got[name] = err.Error()
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("outputs (-want +got):\n%s", d)
	}
}

// TestNamespaces checks two repositories that have models of the same name.
// shows: repository.namespaces
func TestNamespaces(t *testing.T) {
	t.Parallel()
	w, r, roots := spaces(t, repository.Fixed,
		partOf(doubles)+over("ens_one", "part")+over("ens", "ens_part")+over("ens_part", "part"),
		partOf(triples)+over("ens_two", "part")+over("ens_part", "part"))
	if len(r.Failures()) > 0 || !r.Ready() {
		t.Fatalf("failures %v, ready %v", r.Failures(), r.Ready())
	}
	wantOutputs(t, w, r, map[string]any{
		"part": ambiguity, "ens_part": strings.ReplaceAll(ambiguity, "'part'", "'ens_part'"),
		"ens_one": 2, "ens": 2, "ens_two": 3,
	})
	for what, err := range map[string]error{
		"ready":      r.ModelReady("part", 1),
		"statistics": second(r.Statistics("part", 0)),
		"metadata":   second(r.Metadata("part", 0)),
	} {
		if err == nil || err.Error() != ambiguity {
			t.Errorf("%s: %v", what, err)
		}
	}
	n := 0
	for _, e := range r.Index(true) {
		if e.Name == "part" && e.State == infer.Ready {
			n++
		}
	}
	if all, err := r.Statistics("", 0); n != 2 || err != nil || len(all) != 7 {
		t.Errorf("%d parts in the index, statistics of %d: %v", n, len(all), err)
	}
	if got := labels(t, w.metrics, "part"); !cmp.Equal(got, map[string]bool{roots[0]: true, roots[1]: true}) {
		t.Errorf("labels of part: %v", got)
	}
}

func second[T any](_ T, err error) error { return err }

// labels returns the values of the namespace label in a model's metrics.
func labels(t *testing.T, m *telemetry.Metrics, model string) map[string]bool {
	t.Helper()
	families, err := m.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, f := range families {
		for _, one := range f.GetMetric() {
			all := map[string]string{}
			for _, l := range one.GetLabel() {
				all[l.GetName()] = l.GetValue()
			}
			if all["model"] == model {
				got[all["namespace"]] = true
			}
		}
	}
	return got
}

// TestSharedNamespace checks that an ensemble uses a model of another repository when its own has none.
func TestSharedNamespace(t *testing.T) {
	t.Parallel()
	elsewhere := folder(t, partOf(triples))
	named := strings.Replace(over("ens_named", "part"), "step {", `step { model_namespace: "`+elsewhere+`"`, 1)
	w := newWorld(t, stepOf("triple", true, scale(3)))
	w.more.Namespacing = true
	one := folder(t, partOf(doubles)+named+over("ens", "part")+over("ens_self", "ens_self2")+over("ens_lost", "none"))
	two := folder(t, over("ens_far", "part")+over("ens_self2", "double"))
	r := w.repo(t, one, two, elsewhere+"/")
	wantOutputs(t, w, r, map[string]any{"ens_named": 3, "ens": 2})
	want := map[string]string{
		"ens_far":   "ensemble ens_far contains models that are not available or ambiguous: part",
		"ens_lost":  "ensemble ens_lost contains models that are not available or ambiguous: none",
		"ens_self2": "ensemble ens_self2 contains models that are not available or ambiguous: double",
		"ens_self": "ensemble 'ens_self' depends on 'ens_self2' which is not valid. Model 'ens_self2' failed with error: " +
			"ensemble ens_self2 contains models that are not available or ambiguous: double",
	}
	if d := cmp.Diff(want, failures(r)); d != "" {
		t.Errorf("failures (-want +got):\n%s", d)
	}
	w = newWorld(t)
	r = w.repo(t, folder(t, partOf(doubles)+named))
	if got := failures(r)["ens_named"]; got != "ensemble ens_named contains models that are not available or ambiguous: part" {
		t.Errorf("a namespace without namespacing: %s", got)
	}
}

// TestNamesakes checks an ensemble that contains another one of the same name.
func TestNamesakes(t *testing.T) {
	t.Parallel()
	inner := folder(t, partOf(triples)+over("ens", "part"))
	outer := folder(t, strings.Replace(over("ens", "ens"), "step {", `step { model_namespace: "`+inner+`"`, 1)+over("ens_top", "ens"))
	w := newWorld(t, stepOf("triple", true, scale(3)))
	w.more.Namespacing = true
	r := w.repo(t, outer, inner)
	wantOutputs(t, w, r, map[string]any{"ens_top": 3})
	if len(r.Failures()) > 0 {
		t.Error(r.Failures())
	}
}

// TestMovingNamespace removes a model and adds it again while ensembles of both repositories use its name.
func TestMovingNamespace(t *testing.T) {
	t.Parallel()
	w, r, roots := spaces(t, repository.Polled, partOf(doubles)+over("ens_one", "part"), partOf(triples)+over("ens_two", "part"))
	poll := func() {
		t.Helper()
		for range 2 {
			if err := r.Poll(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	move := func(root string, there bool) {
		t.Helper()
		from, to := filepath.Join(root, "part"), filepath.Join(t.TempDir(), "part")
		if there {
			if err := os.CopyFS(from, os.DirFS(filepath.Join(root, ".part"))); err != nil {
				t.Fatal(err)
			}
			poll()
			return
		}
		if err := os.CopyFS(filepath.Join(root, ".part"), os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
		poll()
	}
	wantOutputs(t, w, r, map[string]any{"part": ambiguity, "ens_one": 2, "ens_two": 3})
	move(roots[0], false)
	wantOutputs(t, w, r, map[string]any{"part": 3, "ens_one": 3, "ens_two": 3})
	move(roots[0], true)
	wantOutputs(t, w, r, map[string]any{"part": ambiguity, "ens_one": 2, "ens_two": 3})
	move(roots[1], false)
	wantOutputs(t, w, r, map[string]any{"part": 2, "ens_one": 2, "ens_two": 2})
}

// TestNamespacedLoad checks loads and unloads by names that two repositories have.
func TestNamespacedLoad(t *testing.T) {
	t.Parallel()
	w, r, _ := spaces(t, repository.Explicit, partOf(doubles)+over("ens_one", "part"), partOf(triples)+over("ens_two", "part"))
	load := func(name string) {
		t.Helper()
		if err := r.Load(t.Context(), name, infer.LoadOptions{}); err != nil {
			t.Error(err)
		}
	}
	load("part")
	wantOutputs(t, w, r, map[string]any{"part": ambiguity})
	err := r.Load(t.Context(), "part", infer.LoadOptions{Config: `{"backend":"native"}`})
	wantError(t, err, ambiguity)
	if err := r.Unload(t.Context(), "part", false); err != nil {
		t.Error(err)
	}
	wantOutputs(t, w, r, map[string]any{"part": "Request for unknown model: 'part' has no available versions"})
	load("ens_two")
	wantOutputs(t, w, r, map[string]any{"part": 3, "ens_two": 3})
	if err := r.Unload(t.Context(), "ens_two", true); err != nil {
		t.Error(err)
	}
	wantOutputs(t, w, r, map[string]any{"part": "Request for unknown model: 'part' has no available versions"})
}

// TestNamespacesOf checks by which repositories a name is known, before and after it is loaded.
func TestNamespacesOf(t *testing.T) {
	t.Parallel()
	_, r, roots := spaces(t, repository.Explicit, partOf(doubles)+over("one", "part"), partOf(triples))
	check := func(name string, control bool, want ...string) {
		t.Helper()
		if d := cmp.Diff(want, r.Namespaces(name, control)); d != "" {
			t.Errorf("%s, control %v (-want +got):\n%s", name, control, d)
		}
	}
	check("part", false)
	check("part", true, roots...)
	check("one", true, roots[0])
	check("none", true)
	check("../"+filepath.Base(roots[1])+"/part", true)
	if err := r.Load(t.Context(), "one", infer.LoadOptions{}); err != nil {
		t.Fatal(err)
	}
	check("one", false, roots[0])
	check("part", false, roots[0])
	check("part", true, roots...)
}

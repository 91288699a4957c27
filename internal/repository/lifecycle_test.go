package repository_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/repository"
)

// index returns the index, one line per entry.
func index(r *repository.Repository, ready bool) string {
	var b strings.Builder
	for _, e := range r.Index(ready) {
		b.WriteString(strings.TrimRight(e.Name+" "+e.Version+" "+string(e.State)+" "+e.Reason, " ") + "\n")
	}
	return b.String()
}

// wantIndex waits until no version is unloading and compares the index.
func wantIndex(t *testing.T, r *repository.Repository, want string) {
	t.Helper()
	for strings.Contains(index(r, false), string(infer.Unloading)) {
		if err := t.Context().Err(); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff(strings.TrimLeft(want, "\n"), index(r, false)); d != "" {
		t.Errorf("index (-want +got):\n%s", d)
	}
}

// wantValues sends 1 to each model and compares the outputs; 0 means that the model does not serve.
func wantValues(t *testing.T, w *world, r *repository.Repository, want map[string]float32) {
	t.Helper()
	for name, v := range want {
		got, err := send(t.Context(), r, w.request(name, 1))
		if got != v || (err == nil) != (v != 0) {
			t.Errorf("model %s returned %v, %v; want %v", name, got, err, v)
		}
	}
}

func write(t *testing.T, root, name, text string) {
	t.Helper()
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func load(t *testing.T, r *repository.Repository, name, want string) {
	t.Helper()
	wantError(t, r.Load(t.Context(), name, infer.LoadOptions{}), want)
}

func unload(t *testing.T, r *repository.Repository, name string, dependents bool) {
	t.Helper()
	if err := r.Unload(t.Context(), name, dependents); err != nil {
		t.Errorf("unload %s: %v", name, err)
	}
}

// wantError compares the text of an error; an empty want means no error.
func wantError(t *testing.T, err error, want string) {
	t.Helper()
	got := ""
	if err != nil {
		got = err.Error()
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("error (-want +got):\n%s", d)
	}
}

const pair = `
-- part/1/ --
-- part/config.pbtxt --
backend: "spy" max_batch_size: 8
-- other/1/ --
-- other/config.pbtxt --
backend: "spy" max_batch_size: 8
`

// TestLoad checks loads, reloads and unloads of an ensemble and its models.
// shows: repository
func TestLoad(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	root := folder(t, pair+plain("never", "spy")+
		ensemble("ens", step("part", "-1", "IN", "M"), step("other", "-1", "M", "X"))+
		ensemble("ens2", step("ens", "-1", "IN", "X")))
	r := w.explicit(t, root, "other")
	wantIndex(t, r, "ens\nens2\nnever\nother 1 READY\npart\n")
	load(t, r, "ens2", "")
	const all = "ens 1 READY\nens2 1 READY\nnever\nother 1 READY\npart 1 READY\n"
	wantIndex(t, r, all)
	wantValues(t, w, r, map[string]float32{"ens2": 4, "ens": 4, "part": 2})
	if tried := w.spy.count("try other"); tried != 1 {
		t.Errorf("a model that serves was loaded %d times", tried)
	}

	unload(t, r, "part", false)
	wantIndex(t, r, `
ens 1 UNAVAILABLE ensemble 'ens' depends on 'part' which has no loaded version. Model 'part' loading failed with error: unloaded
ens2 1 UNAVAILABLE ensemble 'ens2' depends on 'ens' which is not valid. Model 'ens' failed with error: ensemble 'ens' depends on 'part' which has no loaded version. Model 'part' loading failed with error: unloaded
never
other 1 READY
part 1 UNAVAILABLE unloaded
`)
	wantValues(t, w, r, map[string]float32{"ens2": 0, "part": 0, "other": 2})
	if !r.Ready() {
		t.Error("not ready although only the unloaded model and its ensembles do not serve")
	}
	touch(t, root, "other")
	load(t, r, "other", "") // compiles the ensembles again, which fails as before
	if !r.Ready() {
		t.Error("not ready because another model was loaded")
	}
	load(t, r, "part", "")
	wantIndex(t, r, all)
	wantValues(t, w, r, map[string]float32{"ens2": 4, "ens": 4, "part": 2})

	unload(t, r, "ens2", true)
	wantIndex(t, r, "ens 1 UNAVAILABLE unloaded\nens2 1 UNAVAILABLE unloaded\nnever\nother 1 READY\npart 1 READY\n")
	if ready := index(r, true); ready != "other 1 READY\npart 1 READY\n" {
		t.Errorf("ready models: %s", ready)
	}
	unload(t, r, "never", true)
	unload(t, r, "unknown", true)
	if !r.Ready() {
		t.Error("not ready although all that is wanted serves")
	}
}

// TestUnloadSharedParts checks unloading an ensemble that shares a model with another one.
func TestUnloadSharedParts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.explicit(t, folder(t, pair+ensemble("ens", step("part", "-1", "IN", "M"), step("other", "-1", "M", "X"))+
		ensemble("ens2", step("part", "-1", "IN", "X"))), "ens", "ens2")
	unload(t, r, "ens", true)
	wantIndex(t, r, "ens 1 UNAVAILABLE unloaded\nens2 1 READY\nother 1 UNAVAILABLE unloaded\npart 1 READY\n")
	unload(t, r, "ens2", false)
	wantIndex(t, r, "ens 1 UNAVAILABLE unloaded\nens2 1 UNAVAILABLE unloaded\nother 1 UNAVAILABLE unloaded\npart 1 READY\n")
}

// TestFailedReload checks that the old version keeps serving when its reload fails.
func TestFailedReload(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	root := folder(t, pair+ensemble("ens", step("part", "-1", "IN", "M"), step("other", "-1", "M", "X")))
	r := w.explicit(t, root, "ens")
	serves := map[string]float32{"ens": 4, "part": 2, "other": 2}

	w.spy.set("part", errors.New("the file is torn"), "")
	touch(t, root, "part")
	load(t, r, "part", "load failed for model 'part': version 1 is at UNAVAILABLE state: the file is torn;\n")
	wantIndex(t, r, "ens 1 READY\nother 1 READY\npart 1 READY the file is torn\n")
	wantValues(t, w, r, serves)

	w.spy.set("part", nil, "ELSE") // an output that the ensemble does not map
	why := "in ensemble ens, ensemble tensor M is mapped from non-existing output OUT in model part"
	load(t, r, "part", "load failed for model 'part': "+why+"\n")
	wantIndex(t, r, "ens 1 READY\nother 1 READY\npart 1 READY "+why+"\n")
	wantValues(t, w, r, serves)

	w.spy.set("part", nil, "")
	write(t, root, "ens/config.pbtxt", "nonsense")
	if err := r.Load(t.Context(), "ens", infer.LoadOptions{}); err == nil || status.CodeOf(err) != status.Internal ||
		!strings.HasPrefix(err.Error(), "failed to load 'ens', failed to poll from model repository: failed to read text proto from ") {
		t.Errorf("a torn configuration: %v", err)
	}
	wantValues(t, w, r, serves)
	if !r.Ready() || len(r.Failures()) != 0 {
		t.Errorf("ready %v, failures %v", r.Ready(), r.Failures())
	}
	load(t, r, "part", "")
	if got := index(r, false); !strings.HasSuffix(got, "part 1 READY\n") {
		t.Errorf("the reason stays after success: %s", got)
	}
	if tried, closed := w.spy.count("load part"), w.spy.count("close model part"); closed < tried-2 {
		t.Errorf("%d models were made, only %d closed", tried, closed)
	}
}

// TestFailedLoad checks index and readiness after a load that failed.
func TestFailedLoad(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.spy.set("part", errors.New("the file is torn"), "")
	r := w.explicit(t, folder(t, pair+plain("bad", "native\n")+ensemble("ens", step("other", "-1", "IN", "M"), step("part", "-1", "M", "X"))))
	why := "ensemble 'ens' depends on 'part' which has no loaded version. Model 'part' loading failed with error: the file is torn"
	load(t, r, "ens", "load failed for model 'ens': "+why+"\n")
	if err := r.Load(t.Context(), "bad", infer.LoadOptions{}); err == nil {
		t.Error("a torn configuration loads")
	}
	bad := r.Failures()[0].Err.Error()
	wantIndex(t, r, "bad  UNAVAILABLE "+bad+"\nens 1 UNAVAILABLE "+why+"\nother\npart 1 UNAVAILABLE the file is torn\n")
	if made, closed := w.spy.count("load other"), w.spy.count("close model other"); made != 1 || closed != 1 {
		t.Errorf("the part that could be loaded: %d made, %d closed", made, closed)
	}
	if r.Ready() {
		t.Error("ready although a loaded model does not serve")
	}
	unload(t, r, "bad", false)
	unload(t, r, "ens", true)
	if !r.Ready() {
		t.Error("not ready although no model is loaded")
	}
	w.spy.set("part", nil, "")
	load(t, r, "ens", "")
	wantValues(t, w, r, map[string]float32{"ens": 4})
}

// TestControl pins the errors of refused loads and unloads per mode.
func TestControl(t *testing.T) {
	t.Parallel()
	root := folder(t, doubleModel)
	for name, tc := range map[string]struct {
		mode  repository.Mode
		model string
		code  status.Code
		want  string
	}{
		"fixed":   {repository.Fixed, "plain", status.Unavailable, "explicit model load / unload is not allowed if polling is enabled"},
		"polled":  {repository.Polled, "plain", status.Unavailable, "explicit model load / unload is not allowed if polling is enabled"},
		"empty":   {repository.Explicit, "", status.InvalidArg, "Model name cannot be empty. Please enter a valid name to deploy."},
		"path":    {repository.Explicit, "../plain", status.InvalidArg, "invalid model name '../plain', model name must not contain path traversal characters"},
		"dots":    {repository.Explicit, "..", status.InvalidArg, "invalid model name '..', model name must not contain path traversal characters"},
		"blanks":  {repository.Explicit, " \t\n\r\f\v ", status.InvalidArg, "Model name cannot be empty. Please enter a valid name to deploy."},
		"padded":  {repository.Explicit, " .. ", status.InvalidArg, "invalid model name ' .. ', model name must not contain path traversal characters"},
		"unknown": {repository.Explicit, "none", status.Internal, "failed to load 'none', failed to poll from model repository: model not found in any model repository"},
		"hidden":  {repository.Explicit, ".plain", status.Internal, "failed to load '.plain', failed to poll from model repository: model not found in any model repository"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.more.Mode = tc.mode
			r := w.repo(t, root)
			err := r.Load(t.Context(), tc.model, infer.LoadOptions{})
			if err == nil || err.Error() != tc.want || status.CodeOf(err) != tc.code {
				t.Errorf("got %v (%v), want %q", err, status.CodeOf(err), tc.want)
			}
			// What cannot be loaded is not loaded either, so that there is nothing to unload.
			if err := r.Unload(t.Context(), tc.model, false); (err == nil) != (tc.mode == repository.Explicit) || err != nil && err.Error() != tc.want {
				t.Errorf("unload: %v", err)
			}
		})
	}
}

// TestCancelledLoad checks that a caller may abandon an active load, and one that waits for another.
func TestCancelledLoad(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.spy.loading = make(chan chan struct{})
	r := w.explicit(t, folder(t, pair))
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() { errs <- r.Load(ctx, "part", infer.LoadOptions{}) })
	wait := <-w.spy.loading
	wantIndex(t, r, "other\npart 1 LOADING\n")
	if r.Ready() {
		t.Error("ready while a model is loading")
	}
	if err := r.ModelReady("part", 1); err == nil || err.Error() != "Request for unknown model: 'part' version 1 is not at ready state" {
		t.Errorf("a model that is loading: %v", err)
	}
	second, giveUp := context.WithCancel(t.Context())
	giveUp()
	for what, err := range map[string]error{
		"load": r.Load(second, "other", infer.LoadOptions{}), "unload": r.Unload(second, "part", false),
	} {
		if status.CodeOf(err) != status.Cancelled {
			t.Errorf("%s when it is cancelled: %v", what, err)
		}
	}
	cancel()
	close(wait)
	if err := <-errs; status.CodeOf(err) != status.Cancelled {
		t.Errorf("load when it is cancelled: %v", err)
	}
	wg.Wait()
	wantIndex(t, r, "other\npart\n")
	if made, closed := w.spy.count("load part"), w.spy.count("close model part"); made != closed {
		t.Errorf("%d models were made, %d closed", made, closed)
	}
}

// TestAfterClose checks that a closed repository refuses requests and changes.
func TestAfterClose(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.more.Mode = repository.Explicit
	r, err := w.open(t.Context(), folder(t, pair))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	load(t, r, "part", "the server is stopping, no model can be loaded or unloaded")
	wantValues(t, w, r, map[string]float32{"part": 0})
}

// TestRetries checks the number of attempts to load a model that fails.
func TestRetries(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.more.LoadRetries, w.more.LoadThreads = 2, 1
	w.spy.set("part", errors.New("the disk is slow"), "")
	r := w.repo(t, folder(t, pair))
	if tried := w.spy.count("try part"); tried != 3 {
		t.Errorf("%d tries, want 3", tried)
	}
	if d := cmp.Diff(map[string]string{"part": "the disk is slow"}, failures(r)); d != "" {
		t.Errorf("failures (-want +got):\n%s", d)
	}
}

// TestStatisticsSurviveReloads checks that a reload keeps a model's counters and that an unload removes them.
func TestStatisticsSurviveReloads(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.explicit(t, folder(t, pair), "part")
	counts := func(want uint64) {
		t.Helper()
		s, err := r.Statistics("part", 0)
		if err != nil || len(s) != 1 || s[0].InferenceCount != want {
			t.Errorf("statistics %+v, %v; want %d inferences", s, err, want)
		}
	}
	wantValues(t, w, r, map[string]float32{"part": 2})
	load(t, r, "part", "")
	wantValues(t, w, r, map[string]float32{"part": 2})
	counts(2)
	unload(t, r, "part", false)
	load(t, r, "part", "")
	counts(0)
}

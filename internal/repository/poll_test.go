package repository_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/repository"
)

// poll polls n times.
func poll(t *testing.T, r *repository.Repository, n int) {
	t.Helper()
	for range n {
		if err := r.Poll(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func remove(t *testing.T, root, name string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(root, name)); err != nil {
		t.Fatal(err)
	}
}

// TestPoll checks the effects of file changes between polls.
// shows: repository.poll
func TestPoll(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.more.Mode = repository.Polled
	root := folder(t, pair+ensemble("ens", step("part", "-1", "IN", "M"), step("other", "-1", "M", "X")))
	r := w.repo(t, root)
	loads := func(want int) {
		t.Helper()
		if n := w.spy.count("load part"); n != want {
			t.Errorf("loaded %d times, want %d", n, want)
		}
	}
	const before = "ens 1 READY\nother 1 READY\npart 1 READY\n"
	poll(t, r, 3)
	loads(1)
	for _, name := range []string{"part/1/__pycache__/x.pyc", "part/.config.pbtxt.swp", "part/config.pbtxt~", "part/1/#x#", "part/1/y.pyc"} {
		write(t, root, name, "noise")
	}
	poll(t, r, 3)
	loads(1)

	write(t, root, "part/2/weights", "half")
	poll(t, r, 1)
	loads(1)
	write(t, root, "part/2/weights", "and the rest") // as if still being copied
	poll(t, r, 1)
	loads(1)
	poll(t, r, 1)
	loads(2)
	wantIndex(t, r, "ens 1 READY\nother 1 READY\npart 1 UNAVAILABLE unloaded\npart 2 READY\n")
	wantValues(t, w, r, map[string]float32{"ens": 4, "part": 2})

	remove(t, root, "part/2")
	poll(t, r, 2)
	wantIndex(t, r, before[:len(before)-len("part 1 READY\n")]+"part 1 READY\npart 2 UNAVAILABLE unloaded\n")

	w.spy.set("part", errors.New("the file is torn"), "")
	write(t, root, "part/1/weights", "torn")
	poll(t, r, 5)
	if n := w.spy.count("try part"); n != 4 {
		t.Errorf("%d tries, want one of each change", n)
	}
	if got := index(r, false); !strings.Contains(got, "part 1 READY the file is torn\n") {
		t.Errorf("index %s", got)
	}
	wantValues(t, w, r, map[string]float32{"ens": 4, "part": 2})
	if !r.Ready() {
		t.Error("not ready although all serve")
	}
}

// TestPollAddsAndRemoves checks that new folders load and removed ones unload.
func TestPollAddsAndRemoves(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.more.Mode = repository.Polled
	root := folder(t, plain("other", "spy"))
	r := w.repo(t, root)
	write(t, root, "ens/config.pbtxt", strings.SplitN(ensemble("ens", step("part", "-1", "IN", "M"), step("other", "-1", "M", "X")), "--\n", 2)[1])
	poll(t, r, 2)
	const missing = "ensemble ens contains models that are not available or ambiguous: part"
	wantIndex(t, r, "ens 1 UNAVAILABLE "+missing+"\nother 1 READY\n")
	write(t, root, "part/config.pbtxt", `backend: "spy" max_batch_size: 8`)
	write(t, root, "part/1/weights", "x")
	poll(t, r, 2)
	wantIndex(t, r, "ens 1 READY\nother 1 READY\npart 1 READY\n")
	wantValues(t, w, r, map[string]float32{"ens": 4})

	remove(t, root, "part")
	poll(t, r, 1)
	wantValues(t, w, r, map[string]float32{"ens": 4, "part": 2})
	poll(t, r, 1)
	wantIndex(t, r, "ens 1 UNAVAILABLE "+missing+"\nother 1 READY\n")
	wantValues(t, w, r, map[string]float32{"ens": 0, "part": 0, "other": 2})
	if !r.Ready() {
		t.Error("not ready although only the removed model and its ensemble do not serve")
	}
	remove(t, root, "ens")
	poll(t, r, 2)
	wantIndex(t, r, "other 1 READY\n")
	if err := os.RemoveAll(root); err != nil {
		t.Fatal(err)
	}
	if err := r.Poll(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "cannot read model repository: ") {
		t.Errorf("a repository that is gone: %v", err)
	}
	wantValues(t, w, r, map[string]float32{"other": 2})
}

// TestPollKeepsServing checks that models keep serving when changes of several folders contradict each other.
func TestPollKeepsServing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.more.Mode = repository.Polled
	root := folder(t, pair+plain("third", "spy")+ensemble("ens", step("part", "-1", "IN", "M"), step("other", "-1", "M", "X"))+
		ensemble("ens2", step("third", "-1", "IN", "X")))
	r := w.repo(t, root)
	w.spy.set("part", nil, "ELSE")
	for _, name := range []string{"part", "other", "third"} {
		write(t, root, name+"/1/weights", "new")
	}
	poll(t, r, 2)
	wantValues(t, w, r, map[string]float32{"ens": 4, "ens2": 2, "part": 2, "other": 2, "third": 2})
	why := "in ensemble ens, ensemble tensor M is mapped from non-existing output OUT in model part"
	wantIndex(t, r, "ens 1 READY\nens2 1 READY\nother 1 READY "+why+"\npart 1 READY "+why+"\nthird 1 READY\n")
	if loads := w.spy.count("load third"); loads != 2 {
		t.Errorf("the model beside it was loaded %d times, want 2", loads)
	}
}

// TestPollSeesPermissions checks that a poll loads a model whose file has become readable.
func TestPollSeesPermissions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.more.Mode = repository.Polled
	root := folder(t, plain("part", "spy"))
	write(t, root, "part/1/weights", "some")
	r := w.repo(t, root)
	if err := os.Chmod(filepath.Join(root, "part", "1", "weights"), 0o640); err != nil {
		t.Fatal(err)
	}
	poll(t, r, 2)
	if n := w.spy.count("load part"); n != 2 {
		t.Errorf("loaded %d times, want 2", n)
	}
}

// TestPollsByTimer checks that the repository polls at its interval.
func TestPollsByTimer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.more.Mode, w.more.PollInterval = repository.Polled, time.Millisecond
	root := folder(t, pair)
	r := w.repo(t, root)
	write(t, root, "third/config.pbtxt", doubles)
	write(t, root, "third/1/weights", "")
	for r.ModelReady("third", 1) != nil {
		if err := t.Context().Err(); err != nil {
			t.Fatal(err)
		}
	}
	fixed := newWorld(t).repo(t, root)
	if err := fixed.Poll(t.Context()); status.CodeOf(err) != status.Unsupported {
		t.Errorf("a repository that is not polled: %v", err)
	}
}

// TestPolicies checks version policies and the selection of a named configuration.
// shows: config.versions
func TestPolicies(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, policy, want string }{
		{"latest", "latest { num_versions: 2 }", "m 3 READY\nm 10 READY\n"},
		{"more than there are", "latest { num_versions: 9 }", "m 1 READY\nm 3 READY\nm 10 READY\n"},
		{"all", "all {}", "m 1 READY\nm 3 READY\nm 10 READY\n"},
		{"specific", "specific { versions: [ 3, 1, 7, 3 ] }", "m 1 READY\nm 3 READY\n"},
		{"none", "latest {}", "m  UNAVAILABLE at least one version must be available under the version policy of model 'm'\n"},
		{"absent", "specific { versions: 4 }", "m  UNAVAILABLE at least one version must be available under the version policy of model 'm'\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.more.ConfigName = "small"
			root := folder(t, "-- m/1/ --\n-- m/3/ --\n-- m/10/ --\n-- m/config.pbtxt --\nwrong\n-- m/configs/small.pbtxt --\n"+
				doubles+" version_policy { "+tc.policy+" }\n"+plain("n", "spy"))
			wantIndex(t, w.repo(t, root), tc.want+"n 1 READY\n")
		})
	}
}

// TestStrictConfig checks that strict mode refuses incomplete configurations.
func TestStrictConfig(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.more.StrictConfig = true
	r := w.repo(t, folder(t, plain("a", "spy")+plain("b", "spy")+
		`input { name: "IN" data_type: TYPE_FP32 dims: -1 } output { name: "OUT" data_type: TYPE_FP32 dims: -1 }`+"\n"+
		plain("c", "spy")+`input { name: "IN" data_type: TYPE_FP32 dims: -1 }`+"\n"))
	want := map[string]string{
		"a": "unable to load model 'a', configuration expects 0 inputs, model provides 1",
		"c": "unable to load model 'c', configuration expects 0 outputs, model provides 1",
	}
	if d := cmp.Diff(want, failures(r)); d != "" {
		t.Errorf("failures (-want +got):\n%s", d)
	}
	if a, b := w.spy.count("load a"), w.spy.count("close model a"); a != b {
		t.Errorf("%d loaded, %d closed", a, b)
	}
}

// TestReadyNames checks that the index lists models that were never loaded, unless only ready ones are requested.
func TestReadyNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.explicit(t, folder(t, pair), "part")
	if d := cmp.Diff([]infer.Entry{{Name: "part", Version: "1", State: infer.Ready}}, r.Index(true)); d != "" {
		t.Errorf("index (-want +got):\n%s", d)
	}
}

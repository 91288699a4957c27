package repository_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/repository"
)

func fingerprint(t *testing.T, r *repository.Repository, model string) string {
	t.Helper()
	got, err := r.Fingerprint(model, 0)
	if err != nil || len(got) != 64 {
		t.Fatalf("fingerprint of %s is %q and %v, expected 64 digits", model, got, err)
	}
	return got
}

// TestFingerprint checks that a fingerprint depends on the content of a model and of the models that it calls, and on
// nothing else.
func TestFingerprint(t *testing.T) {
	t.Parallel()
	content := pair + "-- part/1/weights --\nabcdef\n-- part/labels.txt --\none\n-- bare/2/ --\n" + ensemble("ens", step("part", "-1", "IN", "X"))
	w := newWorld(t)
	root := folder(t, content)
	r := w.explicit(t, root, "part", "other", "ens")
	part, ens, other := fingerprint(t, r, "part"), fingerprint(t, r, "ens"), fingerprint(t, r, "other")
	if part == ens || part == other {
		t.Errorf("models with other contents have the fingerprint %s", part)
	}

	for name, c := range map[string]struct {
		more string // files that are added, or replace others
		same bool
	}{
		"nothing":                        {"", true},
		"what Python leaves":             {"-- part/1/__pycache__/x.pyc --\nx\n-- part/1/.hidden --\nx\n", true},
		"another way to run it":          {"-- part/config.pbtxt --\nbackend: \"spy\" max_batch_size: 8 instance_group { count: 3 kind: KIND_CPU }\n", true},
		"a byte":                         {"-- part/1/weights --\nabcdeg\n", false},
		"another name":                   {"-- part/1/more --\n", false},
		"a file of the model":            {"-- part/labels.txt --\ntwo\n", false},
		"a configuration":                {"-- part/config.pbtxt --\nbackend: \"spy\" max_batch_size: 9\n", false},
		"a parameter":                    {"-- part/config.pbtxt --\nbackend: \"spy\" max_batch_size: 8 parameters { key: \"k\" value { string_value: \"v\" } }\n", false},
		"a model that is not called":     {"-- other/1/weights --\nz\n", true},
		"a file that is called the same": {"-- part/weights --\nabcdef\n", false},
	} {
		x := w.explicit(t, folder(t, content+c.more), "part", "ens")
		if got := fingerprint(t, x, "part"); (got == part) != c.same {
			t.Errorf("with %s the fingerprint of the model is %s, was %s, expected the same: %t", name, got, part, c.same)
		}
		if got := fingerprint(t, x, "ens"); (got == ens) != c.same {
			t.Errorf("with %s the fingerprint of the ensemble is %s, was %s, expected the same: %t", name, got, ens, c.same)
		}
	}

	// It is that of the load: another one follows only with another load.
	if err := os.WriteFile(filepath.Join(root, "part", "1", "weights"), []byte("abcdeg\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := fingerprint(t, r, "part"); got != part {
		t.Errorf("after the file changed, the loaded model has the fingerprint %s, expected %s", got, part)
	}
	load(t, r, "part", "")
	if got := fingerprint(t, r, "part"); got == part {
		t.Error("the model was loaded with another file, and has the same fingerprint")
	}
	reloaded := fingerprint(t, r, "part")
	const changed = `{"backend":"spy","max_batch_size":8,"parameters":{"k":{"string_value":"v"}}}`
	wantError(t, r.Load(t.Context(), "part", infer.LoadOptions{Config: changed}), "")
	override := fingerprint(t, r, "part")
	if override == reloaded {
		t.Error("a load with another configuration has the same fingerprint")
	}
	wantError(t, r.Load(t.Context(), "part", infer.LoadOptions{Config: changed, Files: map[string][]byte{"1/weights": []byte("q")}}), "")
	if got := fingerprint(t, r, "part"); got == override {
		t.Error("a load with other files has the same fingerprint")
	}
	if _, err := r.Fingerprint("nobody", 0); status.CodeOf(err) != status.NotFound {
		t.Errorf("the fingerprint of an unknown model: %v, expected NotFound", err)
	}
}

// TestFingerprintOfBuild checks that native steps, which have no files, have fingerprints of the program.
func TestFingerprintOfBuild(t *testing.T) {
	t.Parallel()
	var got [3]string
	for i, build := range []string{"1", "1", "2"} {
		w := newWorld(t)
		w.more.Build = build
		got[i] = fingerprint(t, w.repo(t, folder(t, plain("double", `native" max_batch_size: 8 parameters { key: "step" value { string_value: "double" } } #"`))), "double")
	}
	if got[0] != got[1] || got[0] == got[2] {
		t.Errorf("fingerprints of builds 1, 1 and 2 are %q", got)
	}
}

// TestFingerprintOfLinks checks that links are their content, and that a circle of them is an error.
func TestFingerprintOfLinks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	direct := fingerprint(t, w.repo(t, folder(t, pair+"-- part/1/data/a --\nx\n")), "part")
	root, away := folder(t, pair), folder(t, "-- a --\nx\n")
	if err := os.Symlink(away, filepath.Join(root, "part", "1", "data")); err != nil {
		t.Fatal(err)
	}
	r := w.repo(t, root)
	if got := fingerprint(t, r, "part"); got != direct {
		t.Errorf("with a link the fingerprint is %s, expected %s", got, direct)
	}
	if err := os.Symlink(filepath.Join(root, "other"), filepath.Join(root, "other", "1", "loop")); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Fingerprint("other", 0); status.CodeOf(err) != status.Unavailable {
		t.Errorf("with a circle of links the error is %v, expected Unavailable", err)
	}
}

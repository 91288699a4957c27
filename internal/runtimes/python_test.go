package runtimes_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/runtimes"
)

// environment is a fetcher of one environment: the fake wheel's module for the Python that is here.
func environment(t *testing.T) *runtimes.Fetcher {
	t.Helper()
	f, release := index(t, wheelBytes(t))
	out, err := exec.CommandContext(t.Context(), "python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])").Output()
	if err != nil {
		t.Fatal(err)
	}
	release.Python, release.Library = strings.TrimSpace(string(out)), "bin/python"
	site := "lib/python" + release.Python + "/site-packages/"
	release.Archives[0].Members = []runtimes.Member{{Path: "ttfake/", File: site + "ttfake"}}
	return f
}

// sees reports whether an interpreter imports the fake package, and where its packages are.
func sees(t *testing.T, python string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), python, "-c", "import ttfake, sys; print(sys.prefix != sys.base_prefix, *ttfake.__path__)").Output()
	if err != nil {
		t.Fatalf("%s: %v", python, err)
	}
	return strings.TrimSpace(string(out))
}

// TestFetchPython makes an environment on the machine's Python, a second one from the cache, and mends one whose Python
// has gone.
func TestFetchPython(t *testing.T) {
	t.Parallel()
	f := environment(t)
	dir := t.TempDir()
	path, err := f.Fetch(t.Context(), "ttfake", dir)
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(dir, "ttfake-1.0")
	if got := sees(t, path); path != filepath.Join(root, "bin", "python") || !strings.HasPrefix(got, "True "+root) {
		t.Errorf("%s imports from %s, want %s", path, got, root)
	}
	f.Env = []string{"PATH="} // from here on nothing can be fetched
	second := t.TempDir()
	other, err := f.Fetch(t.Context(), "ttfake", second)
	if err != nil {
		t.Fatal(err)
	}
	if got := sees(t, other); !strings.HasPrefix(got, "True "+second) {
		t.Errorf("the second imports from %s, want %s", got, second)
	}
	link := filepath.Join(root, "bin", "python3")
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "gone"), link); err != nil {
		t.Fatal(err)
	}
	if again, err := f.Fetch(t.Context(), "ttfake", dir); err != nil || again != path {
		t.Errorf("Fetch over an environment without its Python = %s, %v", again, err)
	}
	sees(t, path)
}

// TestFetchPythonRefuses says what to do where no release is for the machine's Python, and where there is none at all.
func TestFetchPythonRefuses(t *testing.T) { //nolint:paralleltest // it changes where programs are found
	f := environment(t)
	f.Catalog[0].Releases[0].Python = "2.7"
	_, err := f.Fetch(t.Context(), "ttfake", t.TempDir())
	if status.CodeOf(err) != status.Unsupported || !strings.Contains(err.Error(), "no pinned packages for the Pythons found") || !strings.Contains(err.Error(), "of version 3.") {
		t.Errorf("error for another Python = %v", err)
	}
	t.Setenv("PATH", t.TempDir())
	_, err = f.Fetch(t.Context(), "ttfake", t.TempDir())
	if status.CodeOf(err) != status.Unavailable || !strings.Contains(err.Error(), "install python3 with pip") {
		t.Errorf("error without a Python = %v", err)
	}
}

// TestFindPython takes TUTTI_PYTHON for what it names, as a path or as a program's name.
func TestFindPython(t *testing.T) {
	python3, err := exec.LookPath("python3")
	if err != nil {
		t.Skip(err)
	}
	for _, name := range []string{"python3", python3} {
		t.Setenv("TUTTI_PYTHON", name)
		if got, err := runtimes.Find("python", ""); err != nil || got != python3 {
			t.Errorf("TUTTI_PYTHON=%s: %s, %v", name, got, err)
		}
	}
	t.Setenv("TUTTI_PYTHON", "/none")
	if _, err := runtimes.Find("python", ""); err == nil || !strings.Contains(err.Error(), "which TUTTI_PYTHON names") {
		t.Errorf("error of a Python that is not there = %v", err)
	}
}

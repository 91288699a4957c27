package runtimes_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/runtimes"
)

func touch(t *testing.T, path string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Environment and working directory belong to the process: these tests run alone.
func TestFind(t *testing.T) {
	here, cache, env := t.TempDir(), t.TempDir(), t.TempDir()
	t.Chdir(here)
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("TUTTI_ONNXRUNTIME_LIB", "")
	t.Setenv("LD_LIBRARY_PATH", "")
	find := func(explicit string) string {
		t.Helper()
		path, err := runtimes.Find("onnxruntime", explicit)
		if err != nil {
			return err.Error()
		}
		return path
	}
	expect := func(what, explicit, want string) {
		t.Helper()
		if got := find(explicit); got != want {
			t.Errorf("%s: found %s, want %s", what, got, want)
		}
	}
	if got := find(""); !strings.HasPrefix(got, "/") {
		expect("nothing", "", "ONNX Runtime is not installed: run 'tutti runtime fetch onnxruntime'")
	}
	release := filepath.Join("onnxruntime-1.31.1", "libonnxruntime.so.1.31.1")
	expect("cache", "", touch(t, filepath.Join(cache, "tutti", release)))
	expect("working directory", "", touch(t, filepath.Join(here, runtimes.Folder, release)))
	lib := touch(t, filepath.Join(env, "libonnxruntime.so"))
	t.Setenv("TUTTI_ONNXRUNTIME_LIB", lib)
	expect("environment", "", lib)
	t.Setenv("TUTTI_ONNXRUNTIME_LIB", env)
	expect("folder in the environment", "", lib)
	own := touch(t, filepath.Join(t.TempDir(), "own.so"))
	expect("explicit", own, own)
	none := filepath.Join(env, "none.so")
	expect("explicit, missing", none, "no ONNX Runtime library at '"+none+
		"', which library path names: correct it, or unset it and run 'tutti runtime fetch onnxruntime'")
	if _, err := runtimes.Find("nothing", ""); status.CodeOf(err) != status.InvalidArg {
		t.Errorf("error of an unknown runtime = %v", err)
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	for _, r := range runtimes.List() {
		if r.Name == "" || r.Title == "" || r.Env() == "" || r.Key() == "" || len(r.Releases) == 0 {
			t.Errorf("incomplete runtime %+v", r)
		}
		for _, p := range r.Releases {
			complete := p.Version != "" && p.Library != "" && len(p.Archives) > 0 && (p.Python == "") == (len(r.Sonames) > 0)
			for _, a := range p.Archives {
				complete = complete && len(a.Sum) == 64 && a.Size > 0 && len(a.Members) > 0
				for _, m := range a.Members {
					complete = complete && m.File != "" && (strings.HasSuffix(m.Path, "/") || len(m.Sum) == 64 && m.Bytes > 0)
				}
			}
			if !complete {
				t.Errorf("incomplete release %+v", p)
			}
		}
	}
}

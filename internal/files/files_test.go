package files_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/tutti-server/tutti/internal/files"
)

func TestIsRegular(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Symlink(path, filepath.Join(dir, "link")), os.Symlink(filepath.Join(dir, "none"), filepath.Join(dir, "broken"))); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"a": true, "link": true, "broken": false, "none": false, ".": false, "a/b": false} {
		if got := files.IsRegular(filepath.Join(dir, name)); got != want {
			t.Errorf("%s: %t, want %t", name, got, want)
		}
	}
}

func TestReplace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	for _, tt := range []struct {
		text string
		mode fs.FileMode
	}{{"old", 0o600}, {"new and longer", 0o644}, {"", 0o640}} {
		if err := files.Replace(path, []byte(tt.text), tt.mode); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		info, ofStat := os.Stat(path)
		if err := errors.Join(err, ofStat); err != nil {
			t.Fatal(err)
		}
		if string(got) != tt.text || info.Mode() != tt.mode {
			t.Errorf("%q with %v, want %q with %v", got, info.Mode(), tt.text, tt.mode)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := files.Replace(filepath.Join(dir, "folder"), []byte("x"), 0o600); err == nil {
		t.Error("a folder was replaced")
	}
	if err := files.Replace(filepath.Join(dir, "none", "a"), []byte("x"), 0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v, want no such folder", err)
	}
	list, err := os.ReadDir(dir)
	if err != nil || len(list) != 2 {
		t.Errorf("%v, %v: temporary files are left", list, err)
	}
}

package python

import (
	"os"
	"path/filepath"
	"testing"
)

// TestLeftFolders checks that a start removes the script folder of a killed server, and keeps folders that are in
// use or not its own.
func TestLeftFolders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	used, err := writeScripts(dir)
	if err != nil {
		t.Fatal(err)
	}
	left, err := writeScripts(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := left.lock.Close(); err != nil { // as the system does for a process that ends
		t.Fatal(err)
	}
	other := filepath.Join(dir, scriptFolderPrefix+"other")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	next, err := writeScripts(dir)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{used.path: true, left.path: false, other: true, next.path: true} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s: %v, want it there: %v", path, err, want)
		}
	}
	for _, f := range []*scriptFolder{used, next} {
		if err := f.remove(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(f.path); err == nil {
			t.Errorf("%s is still there", f.path)
		}
	}
}

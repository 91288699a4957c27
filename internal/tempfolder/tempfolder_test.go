package tempfolder_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/internal/tempfolder"
)

const prefix = "some-files-"

// TestHelper makes a folder in another process, which then waits to be killed.
func TestHelper(t *testing.T) {
	dir := os.Getenv("TEST_TEMPFOLDER")
	if dir == "" {
		t.Skip("run by TestRemoveStale")
	}
	f, err := tempfolder.Make(dir, prefix)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stdout.WriteString("made " + f.Path() + "\n"); err != nil {
		t.Fatal(err)
	}
	select {}
}

// TestRemoveStale checks that the folder of a killed process is removed, and that those of a living one, and foreign ones, stay.
func TestRemoveStale(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHelper$") //nolint:gosec // this program
	cmd.Env = append(os.Environ(), "TEST_TEMPFOLDER="+dir)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 4096)
	n, err := out.Read(line)
	path, ok := strings.CutPrefix(strings.TrimSpace(string(line[:n])), "made ")
	if err != nil || !ok {
		t.Fatalf("the other process printed %q, %v", line[:n], err)
	}
	mine, err := tempfolder.Make(dir, prefix)
	if err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(dir, prefix+"foreign")
	if err := os.Mkdir(foreign, 0o700); err != nil {
		t.Fatal(err)
	}
	there := func(what string, want map[string]bool) {
		t.Helper()
		tempfolder.RemoveStale(dir, prefix, func(path string) bool { return path != foreign })
		for path, want := range want {
			if _, err := os.Stat(path); (err == nil) != want {
				t.Errorf("%s: %s: %v, want it there: %v", what, path, err, want)
			}
		}
	}
	there("while both live", map[string]bool{path: true, mine.Path(): true, foreign: true})
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	there("after one was killed", map[string]bool{path: false, mine.Path(): true, foreign: true})
	if err := mine.Remove(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left in the folder: %v, %v; want the foreign one", left, err)
	}
}

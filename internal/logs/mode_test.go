package logs_test

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/tutti-server/tutti/internal/logs"
)

// TestFileMode checks that a log file is for the server's user only.
func TestFileMode(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "log")
	if _, err := logs.New(logs.Settings{File: name}, io.Discard, io.Discard); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(name); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v; want mode 0600", st, err)
	}
}

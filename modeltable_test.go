package tutti //nolint:testpackage // the table is not exported

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestModelTable checks that a log file has the reason of a failure on one line.
func TestModelTable(t *testing.T) {
	t.Parallel()
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	reason := strings.TrimSpace(strings.Repeat("a sentence that tools search for ", 8))
	list := []ModelStatus{{Name: "good", Version: "3"}, {Name: "bad", Version: "-", Err: errors.New(reason)}}
	if got := modelTable(list, statusWidth(file)); !strings.Contains(got, "| bad   | -       | UNAVAILABLE: "+reason+" |") ||
		!strings.Contains(got, "| good  | 3       | READY ") {
		t.Errorf("table:\n%s", got)
	}
	if got := modelTable(list, terminalWidth); strings.Contains(got, reason) {
		t.Errorf("lines are not wrapped:\n%s", got)
	}
}

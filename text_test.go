package tutti //nolint:testpackage // how tables look is no one else's business

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTable has long and empty cells.
func TestTable(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	writeTable(&b, [][]string{{"MODEL", "VERSION", "STATE", "REASON"}, {"żółw", "", "READY", ""}, {"a", "", "UNAVAILABLE", ""}})
	const want = "MODEL  STATE\nżółw   READY\na      UNAVAILABLE\n"
	if b.String() != want {
		t.Errorf("got\n%s, want\n%s", b.String(), want)
	}
	long := "ValueError: " + strings.Repeat("word ", 60) + "\n\nAt:\n  /a/" + strings.Repeat("x", terminalWidth) + "/model.py(4): initialize\n"
	lines := wrap(long, terminalWidth)
	if strings.Join(strings.Fields(long), " ") != strings.Join(lines, " ") {
		t.Errorf("words are lost: %q", lines)
	}
	for i, line := range lines {
		if len(line) > terminalWidth && strings.Contains(line, " ") || line == "" {
			t.Errorf("line %d is %q", i, line)
		}
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	sentence := strings.Repeat("a sentence that a log is searched for ", 8)
	if got := wrap(sentence, widthOf(file)); len(got) != 1 {
		t.Errorf("a file has the sentence on %d lines", len(got))
	}
	if len(lines) != 7 || lines[4] != "At:" {
		t.Errorf("%d lines: %q", len(lines), lines)
	}
}

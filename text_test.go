package tutti //nolint:testpackage // how tables look is no one else's business

import (
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
	long := "ValueError: " + strings.Repeat("word ", 60) + "\n\nAt:\n  /a/" + strings.Repeat("x", statusWidth) + "/model.py(4): initialize\n"
	lines := wrap(long, statusWidth)
	if strings.Join(strings.Fields(long), " ") != strings.Join(lines, " ") {
		t.Errorf("words are lost: %q", lines)
	}
	for i, line := range lines {
		if len(line) > statusWidth && strings.Contains(line, " ") || line == "" {
			t.Errorf("line %d is %q", i, line)
		}
	}
	if len(lines) != 7 || lines[4] != "At:" {
		t.Errorf("%d lines: %q", len(lines), lines)
	}
}

package table_test

import (
	"strings"
	"testing"

	"github.com/tutti-server/tutti/internal/table"
)

func TestColumns(t *testing.T) {
	t.Parallel()
	rows := [][]string{{"MODEL", "VERSION", "STATE"}, {"żółw", "", "READY"}, {"a", "", "UNAVAILABLE"}}
	var left, right strings.Builder
	table.Left(&left, rows)
	table.Right(&right, "> ", rows)
	for _, tt := range []struct{ name, got, want string }{
		{"left", left.String(), "MODEL  STATE\nżółw   READY\na      UNAVAILABLE\n"},
		{"right", right.String(), "> MODEL  VERSION        STATE\n> żółw                  READY\n> a               UNAVAILABLE\n"},
		{"box", table.Box(rows[:2]), "+-------+---------+-------+\n| MODEL | VERSION | STATE |\n" +
			"+-------+---------+-------+\n| żółw  |         | READY |\n+-------+---------+-------+"},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: got\n%s, want\n%s", tt.name, tt.got, tt.want)
		}
	}
}

func TestWrap(t *testing.T) {
	t.Parallel()
	const width = 100
	long := "ValueError: " + strings.Repeat("word ", 60) + "\n\nAt:\n  /a/" + strings.Repeat("x", width) + "/model.py(4): initialize\n"
	lines := table.Wrap(long, width)
	if strings.Join(strings.Fields(long), " ") != strings.Join(lines, " ") {
		t.Errorf("words are lost: %q", lines)
	}
	for i, line := range lines {
		if len(line) > width && strings.Contains(line, " ") || line == "" {
			t.Errorf("line %d is %q", i, line)
		}
	}
	if len(lines) != 7 || lines[4] != "At:" {
		t.Errorf("%d lines: %q", len(lines), lines)
	}
}

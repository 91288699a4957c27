package main

import (
	"os"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/internal/table"
)

// TestFirstScreen checks that the first screen of README.md, 50 lines of 100 columns, has the picture, how to install it, and the start
// with a model up to its response.
func TestFirstScreen(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var screen []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSuffix(line, "\n"); strings.HasPrefix(line, "<!--") {
			continue // not shown
		}
		screen = append(screen, table.Wrap(line, 100)...)
		if line == "" {
			screen = append(screen, "")
		}
	}
	first := strings.Join(screen[:50], "\n")
	for _, want := range []string{"](docs/dashboard.webp)", "## Install", "make demo", "tutti init", "tutti serve", "tutti infer", `"data":["two"`} {
		if !strings.Contains(first, want) {
			t.Errorf("the first screen has no %q:\n%s", want, first)
		}
	}
}

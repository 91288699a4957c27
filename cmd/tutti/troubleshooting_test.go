package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTroubleshooting checks that the program still has the messages of docs/troubleshooting.md: their words are in its sources or in what
// tutti validate prints of the mistakes in testdata/mistakes.
func TestTroubleshooting(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(docsDir + "troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	messages := regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllSubmatch(page, -1)
	if len(messages) < 20 {
		t.Fatalf("%d messages on the page", len(messages))
	}
	sources := programText(t)
	for _, m := range messages {
		for part := range strings.SplitSeq(string(m[1]), "…") {
			if part = strings.Trim(part, " ,:"); len(part) > 3 && !strings.Contains(sources, part) {
				t.Errorf("no message has the words %q of %q", part, m[1])
			}
		}
	}
}

// programText returns the sources of the program and the expected diagnostics of mistakes.
func programText(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, root := range []string{"../../backends", "../../core", "../../internal", "../../pipeline", "../../scheduler", "../../steps", "testdata/mistakes", "../../server.go", "../../tutti.go", "../../endpoint.go"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Name() == "node_modules" {
				return filepath.SkipDir
			}
			ext := filepath.Ext(path)
			if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") || ext != ".go" && ext != ".py" && ext != ".txtar" {
				return err
			}
			text, err := os.ReadFile(path)
			b.Write(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	// Formats stand for names as the page's "…" does.
	return strings.NewReplacer("'%s'", "…", "%s", "…", "%d", "…", `\"`, `"`).Replace(b.String())
}

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	// classTest matches a test that the table of attacks names, as `folder:TestName`.
	classTest = regexp.MustCompile("`([a-z0-9_/]+):((?:Test|Fuzz)\\w+)`")
	// testFunction matches the head of a test or fuzz target.
	testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
)

// TestAttackClasses checks that every class of attacks in docs/security.md has tests, and that these exist.
func TestAttackClasses(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "docs", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "## Known classes of attacks")
	table, _, _ = strings.Cut(table, "\n## ")
	if !found {
		t.Fatal("docs/security.md has no section 'Known classes of attacks'")
	}
	classes, folders := 0, map[string]map[string]bool{}
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| class") {
			continue
		}
		classes++
		tests := classTest.FindAllStringSubmatch(line, -1)
		if len(tests) == 0 {
			t.Errorf("no test: %s", line)
		}
		for _, m := range tests {
			if folders[m[1]] == nil {
				folders[m[1]] = testsOf(t, filepath.Join(root, m[1]))
			}
			if !folders[m[1]][m[2]] {
				t.Errorf("%s has no test %s, which docs/security.md names", m[1], m[2])
			}
		}
	}
	if classes < 19 { // as many are published
		t.Errorf("%d classes of attacks, expected 19 or more", classes)
	}
}

// testsOf returns the names of the tests in a folder.
func testsOf(t *testing.T, dir string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range testFunction.FindAllStringSubmatch(string(text), -1) {
			names[m[1]] = true
		}
	}
	return names
}

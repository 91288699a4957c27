package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	markdownLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading      = regexp.MustCompile(`(?m)^#+ +(.+?) *$`)
	notInSlug    = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	codeSpan     = regexp.MustCompile("`[^`\n]*`")
)

// anchors returns the anchors of a page's headings, as GitHub and the site's generator make them.
func anchors(text string) map[string]bool {
	found := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(withoutFences(text), -1) {
		slug := notInSlug.ReplaceAllString(strings.ToLower(markdownLink.ReplaceAllString(m[1], "")), "")
		found[strings.ReplaceAll(slug, " ", "-")] = true
	}
	return found
}

// withoutFences returns a page without its fenced blocks.
func withoutFences(text string) string {
	var b strings.Builder
	inside := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			inside = !inside
		} else if !inside {
			b.WriteString(line)
		}
	}
	return b.String()
}

// brokenLinks returns the links of a page that lead to no file, or to no heading of it.
func brokenLinks(path string) (broken []string, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for _, m := range markdownLink.FindAllStringSubmatch(codeSpan.ReplaceAllString(withoutFences(string(text)), ""), -1) {
		if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
			continue
		}
		name, anchor, _ := strings.Cut(m[1], "#")
		target := path
		if name != "" {
			target = filepath.Join(filepath.Dir(path), name)
		}
		if _, err := os.Stat(target); err != nil {
			broken = append(broken, m[1])
			continue
		}
		if anchor == "" || filepath.Ext(target) != ".md" {
			continue
		}
		page, err := os.ReadFile(target)
		if err != nil {
			return nil, err
		}
		if !anchors(string(page))[anchor] {
			broken = append(broken, m[1])
		}
	}
	return broken, nil
}

// TestLinks checks the links of all pages of the repository.
func TestLinks(t *testing.T) {
	t.Parallel()
	checked := 0
	for _, root := range []string{"../../docs", "../../examples", "../../deploy", "../../README.md", "../../CHANGELOG.md", "../../CONTRIBUTING.md", "../../SECURITY.md"} {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".md" {
				return err
			}
			checked++
			broken, err := brokenLinks(path)
			for _, link := range broken {
				t.Errorf("%s: the link %s leads nowhere", path, link)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if checked < 60 {
		t.Errorf("%d pages were checked", checked)
	}
}

// TestSiteNavigation checks that the navigation of the site has every page of docs/ once, and README.md as index.md.
func TestSiteNavigation(t *testing.T) {
	t.Parallel()
	config, err := os.ReadFile("../../mkdocs.yml")
	if err != nil {
		t.Fatal(err)
	}
	_, nav, _ := strings.Cut(string(config), "\nnav:\n")
	var listed []string
	for _, m := range regexp.MustCompile(`(?m)^ +- (\S+\.md)$`).FindAllStringSubmatch(nav, -1) {
		listed = append(listed, m[1])
	}
	want := []string{"index.md"}
	pages, err := filepath.Glob(docsDir + "*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		want = append(want, filepath.Base(page))
	}
	slices.Sort(listed)
	slices.Sort(want)
	for _, name := range want {
		if n := slices.Index(listed, name); n < 0 {
			t.Errorf("mkdocs.yml has no docs/%s in its navigation", name)
		}
	}
	if len(listed) != len(want) {
		t.Errorf("the navigation has %d pages, want %d: %q", len(listed), len(want), listed)
	}
}

// TestBrokenLinks checks that links which lead nowhere are found.
func TestBrokenLinks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	page := filepath.Join(dir, "page.md")
	text := "# A page\n\n## Use `x`, once\n\n[a](#use-x-once) [b](#nowhere) [c](none.md) [d](page.md#a-page) [e](https://example.com/none)\n\n```\n# Code\n[f](none)\n```\n[g](#code)\n"
	if err := os.WriteFile(page, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	broken, err := brokenLinks(page)
	if want := []string{"#nowhere", "none.md", "#code"}; err != nil || !slices.Equal(broken, want) {
		t.Errorf("%q, want %q: %v", broken, want, err)
	}
}

// lead is the first paragraph of a page below its title.
var lead = regexp.MustCompile(`(?m)^# .+\n+((?:[^#\n<!].*\n)+)`)

// TestPageLeads checks that each page begins with what its reader can do after it.
func TestPageLeads(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob(docsDir + "*.md")
	if err != nil || len(pages) < 30 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	promise := regexp.MustCompile(`^(After this page|With this page|With these commands|With .tutti \w+.) you `)
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		first := lead.FindSubmatch(text)
		if first == nil || !promise.Match(first[1]) && !strings.HasPrefix(string(first[1]), "After this page your ") {
			t.Errorf("%s does not begin with what the reader can do after it (After this page you ...): %.100q", page, first)
		}
	}
}

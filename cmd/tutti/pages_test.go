package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/internal/preparedtest"
)

// fence is a fenced block of a page.
type fence struct {
	line            int    // of the block's first line in the page
	language, title string // ```LANGUAGE title="FILE"
	comment         string // the HTML comment in front of the block: what a test does with it
	text, output    string // output is the block of language "output" that follows
}

// page is a page of the documentation. How a block is checked depends on its language and on the comment in front of it:
//
//	```console                 every command after "$ " is executed; the lines below it are what it prints, see printedAs
//	```python, ```go           a program that is executed; a block of language "output" after it is what it prints
//	``` title="FILE"           in any language: the file is written before the commands after it are executed
//	<!-- exit 1 -->            the last command of the block ends with that status
//	<!-- from FILE -->         the block stands in that file of the repository, which has tests of its own
//	<!-- serve ARGS -->        a server with these arguments runs from here on; the text says how the reader has started it
//	<!-- run by TestName -->   that test executes the block
//	<!-- not run: REASON -->   nothing executes the block
//
// Comments at the top, for the whole page:
//
//	<!-- needs text python --> the page is skipped if one of these was not prepared
//	<!-- page run by TestName -->, <!-- page not run: REASON -->
type page struct {
	path, name string
	text       string
	comment    string   // for the whole page: "run by TestName" or "not run: REASON"
	needs      []string // what must have been prepared
	fences     []fence
}

var (
	fenceLine   = regexp.MustCompile("^( *)```+([\\w+-]*)(?: +title=\"([^\"]+)\")?\\s*$")
	commentLine = regexp.MustCompile(`^ *<!-- (page |needs |serve )?(.+?) -->$`)
	// commandLine matches what a reader would type into a terminal.
	commandLine = regexp.MustCompile(`(?m)^ *(\$ |(sudo|tutti|bin/tutti|curl|docker|git|make|go|pip|python3?|helm|kubectl|promtool|scripts/\S+) )`)
	checkedBy   = regexp.MustCompile(`^(not run: .{10,}|run by Test\w+|from \S+|exit \d+)$`)
)

// readPage parses a page.
func readPage(path string) (*page, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	p := &page{path: path, name: strings.TrimSuffix(filepath.Base(path), ".md"), text: string(text)}
	comment, lines := "", strings.Split(p.text, "\n")
	for i := 0; i < len(lines); i++ {
		if m := commentLine.FindStringSubmatch(lines[i]); m != nil {
			switch m[1] {
			case "page ":
				p.comment = m[2]
			case "needs ":
				p.needs = strings.Fields(m[2])
			case "serve ":
				p.fences = append(p.fences, fence{line: i + 1, language: "console", text: "$ tutti serve " + m[2] + "\n"})
			default:
				comment = m[2]
			}
			continue
		}
		m := fenceLine.FindStringSubmatch(lines[i])
		if m == nil {
			if strings.HasPrefix(strings.TrimSpace(lines[i]), "```") {
				return nil, fmt.Errorf("%s:%d: expected ```LANGUAGE title=\"FILE\", found %s", path, i+1, lines[i])
			}
			if lines[i] != "" {
				comment = ""
			}
			continue
		}
		f := fence{line: i + 1, language: m[2], title: m[3], comment: comment}
		for i++; i < len(lines) && strings.TrimSpace(lines[i]) != "```"; i++ {
			f.text += strings.TrimPrefix(lines[i], m[1]) + "\n"
		}
		if i == len(lines) {
			return nil, fmt.Errorf("%s:%d: the block has no end", path, f.line)
		}
		comment = ""
		if n := len(p.fences); f.language == "output" && n > 0 {
			p.fences[n-1].output = f.text
			continue
		}
		p.fences = append(p.fences, f)
	}
	return p, nil
}

// commands reports whether a reader would execute the block.
func (f *fence) commands() bool {
	switch f.language {
	case "console", "sh", "bash":
		return true
	case "python", "go":
		return f.title == ""
	}
	return commandLine.MatchString(f.text)
}

// executed reports whether the block is executed here.
func (f *fence) executed() bool {
	executable := f.language == "console" || (f.language == "python" || f.language == "go") && f.title == ""
	return executable && (f.comment == "" || strings.HasPrefix(f.comment, "exit "))
}

// problems returns what is wrong with the page's blocks: commands that nothing executes and that have no reason for it.
func (p *page) problems(tests map[string]bool) (problems []string) {
	report := func(line int, format string, args ...any) {
		problems = append(problems, fmt.Sprintf("%s:%d: ", p.path, line)+fmt.Sprintf(format, args...))
	}
	known := func(line int, comment string) bool {
		name, ok := strings.CutPrefix(comment, "run by ")
		if ok && !tests[name] {
			report(line, "there is no test %s", name)
		}
		return ok
	}
	runs := known(1, p.comment) || strings.HasPrefix(p.comment, "not run: ")
	if p.comment != "" && !checkedBy.MatchString(p.comment) {
		report(1, "the page's comment is %q, expected \"run by TestName\" or \"not run: REASON\"", p.comment)
	}
	for i := range p.fences {
		f := &p.fences[i]
		if f.comment != "" && p.comment == "" && !checkedBy.MatchString(f.comment) {
			report(f.line, "the comment of the block is %q, expected the form %s", f.comment, checkedBy)
		}
		if known(f.line, f.comment) || f.executed() {
			runs = true
		}
		if f.commands() && !f.executed() && f.comment == "" && p.comment == "" {
			report(f.line, "the block has commands that no test executes, expected a block of language console with \"$ \" in front of each command, "+
				"or <!-- not run: REASON --> in front of the block")
		}
		if f.language == "console" && f.executed() && !strings.HasPrefix(f.text, "$ ") {
			report(f.line, "the block begins with %.20q, expected \"$ \" and a command", f.text)
		}
	}
	if !runs {
		report(1, "nothing of the page is executed, expected commands, or <!-- page not run: REASON -->")
	}
	return problems
}

// testNames returns the names of all tests of the repository.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	for _, dir := range []string{".", "../../deploy", "../../conformance", "../../internal", "../../client", "../../core", "../../architecture_test.go"} {
		err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.Name() == "node_modules" {
				return filepath.SkipDir
			}
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, m := range declared.FindAllSubmatch(text, -1) {
				names[string(m[1])] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return names
}

// allPages returns README.md and the pages of docs/.
func allPages(t *testing.T) []*page {
	t.Helper()
	paths, err := filepath.Glob(docsDir + "*.md")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	var pages []*page
	for _, path := range append([]string{"../../README.md"}, paths...) {
		p, err := readPage(path)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, p)
	}
	return pages
}

// TestPages executes the commands and snippets of README.md and of each page of docs/, and compares what they print. A block that
// is not executed has a comment with the reason.
func TestPages(t *testing.T) {
	t.Parallel()
	tests := testNames(t)
	for _, p := range allPages(t) {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			for _, problem := range p.problems(tests) {
				t.Error(problem)
			}
			p.compareSources(t)
			if slices.ContainsFunc(p.fences, func(f fence) bool { return f.executed() }) && (p.comment == "") {
				newPageRun(t, p).all()
			}
		})
	}
}

// compareSources checks that blocks "from FILE" stand in that file. Indentation does not count.
func (p *page) compareSources(t *testing.T) {
	t.Helper()
	root, err := preparedtest.Root()
	if err != nil {
		t.Fatal(err)
	}
	fields := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	for i := range p.fences {
		f := &p.fences[i]
		name, ok := strings.CutPrefix(f.comment, "from ")
		if !ok {
			continue
		}
		source, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Errorf("%s:%d: %v", p.path, f.line, err)
		} else if !strings.Contains(fields(string(source)), fields(f.text)) {
			t.Errorf("%s:%d: the block is not in %s", p.path, f.line, name)
		}
	}
}

// TestPageProblems checks that a page whose commands nothing executes is found.
func TestPageProblems(t *testing.T) {
	t.Parallel()
	const run = "```console\n$ tutti version\n```\n"
	for _, c := range []struct{ text, problem string }{
		{run, ""},
		{"# A page\n", "nothing of the page is executed"},
		{"<!-- page not run: it has no commands -->\n", ""},
		{"<!-- page run by TestPages -->\n", ""},
		{"<!-- page run by TestThere -->\n", "no test TestThere"},
		{"<!-- page later -->\n" + run, "the page's comment is"},
		{run + "```\ncurl localhost\n```\n", "commands that no test executes"},
		{run + "```text\n$ tutti\n```\n", "commands that no test executes"},
		{run + "```sh\nls\n```\n", "commands that no test executes"},
		{run + "   ```\n   make demo\n   ```\n", "commands that no test executes"},
		{run + "<!-- not run: it needs a cluster -->\n```\nkubectl get pods\n```\n", ""},
		{run + "<!-- not run: -->\n```\nkubectl get pods\n```\n", "the comment of the block"},
		{run + "<!-- run by TestNowhere -->\n```\nkubectl get pods\n```\n", "no test TestNowhere"},
		{"```console\ntutti version\n```\n", "expected \"$ \""},
	} {
		path := filepath.Join(t.TempDir(), "page.md")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		p, err := readPage(path)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(p.problems(map[string]bool{"TestPages": true}), "\n")
		if (got == "") != (c.problem == "") || !strings.Contains(got, c.problem) {
			t.Errorf("%q: %q, want %q", c.text, got, c.problem)
		}
	}
}

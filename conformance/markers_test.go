package conformance_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	markerLine = regexp.MustCompile(`^(\s*)(?://|#|--) shows: (.+)$`)
	testStart  = regexp.MustCompile(`^(?:func ((?:Test|Fuzz)\w+)\(|def (\w+)\()`)
)

// collect reads the markers of every test of the project. A comment "shows: A B" above or inside a test says that
// the test shows A and B. In a script the comment may stand anywhere. For example, "shows: config.ragged" marks a
// test of ragged batches.
func collect(t *testing.T) map[string][]string {
	t.Helper()
	shown := map[string][]string{}
	walkTests(t, func(path, text string) {
		for _, m := range markers(path, text) {
			shown[m[0]] = append(shown[m[0]], m[1])
		}
	})
	return shown
}

// walkTests calls visit for every source file of tests, with its path in the project.
func walkTests(t *testing.T, visit func(path, text string)) {
	t.Helper()
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && path != ".." && (strings.HasPrefix(name, ".") || name == "bin") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(name, "_test.go") && !strings.HasSuffix(name, ".txtar") && !strings.HasSuffix(name, "_cases.py") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err == nil {
			visit(filepath.ToSlash(strings.TrimPrefix(path, "../")), string(text))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// markers returns each marker of a file with the name of the test that has it.
func markers(path, text string) [][2]string {
	var found [][2]string
	var above []string
	current := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if m := testStart.FindStringSubmatch(line); m != nil {
			current = testName(path, m[1]+m[2])
			for _, marker := range above {
				found = append(found, [2]string{marker, current})
			}
			above = nil
		}
		m := markerLine.FindStringSubmatch(line)
		switch {
		case m == nil:
		case strings.HasSuffix(path, ".txtar"):
			for marker := range strings.FieldsSeq(m[2]) {
				found = append(found, [2]string{marker, testName(path, "")})
			}
		case m[1] == "":
			above = append(above, strings.Fields(m[2])...)
		default:
			for marker := range strings.FieldsSeq(m[2]) {
				found = append(found, [2]string{marker, current})
			}
		}
	}
	return found
}

// testName returns a test's name as the page shows it.
func testName(path, function string) string {
	folder, base := filepath.Split(path)
	switch {
	case strings.HasSuffix(path, ".txtar"):
		return strings.TrimSuffix(strings.Replace(folder, "testdata/", "", 1)+base, ".txtar")
	case strings.HasSuffix(path, ".py"):
		return "conformance/" + function
	}
	return folder + function
}

func TestMarkers(t *testing.T) {
	t.Parallel()
	source := "// shows: a b\nfunc TestX(t *testing.T) {\n\t// shows: c\n}\n"
	got := markers("p/x_test.go", source)
	want := [][2]string{{"a", "p/TestX"}, {"b", "p/TestX"}, {"c", "p/TestX"}}
	if len(got) != len(want) || got[0] != want[0] || got[2] != want[2] {
		t.Errorf("markers = %v, want %v", got, want)
	}
	if got := markers("cmd/p/testdata/script/x.txtar", "# shows: a\n"); len(got) != 1 || got[0][1] != "cmd/p/script/x" {
		t.Errorf("markers = %v", got)
	}
}

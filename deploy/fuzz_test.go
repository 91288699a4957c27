package deploy_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestFuzzWorkflow checks that each fuzz target is in one group of the workflow, which has time for all of its group.
func TestFuzzWorkflow(t *testing.T) {
	t.Parallel()
	var workflow struct {
		Jobs map[string]struct {
			Strategy struct {
				Matrix struct{ Include []struct{ Name, Pkg string } }
			}
		}
	}
	decodeYAML(t, "../.github/workflows/fuzz.yml", &workflow)
	counts, target := map[string]int{}, regexp.MustCompile(`(?m)^func Fuzz\w+`)
	err := filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		n := len(target.FindAll(text, -1))
		if err != nil || n == 0 {
			return err
		}
		var in []string
		for _, g := range workflow.Jobs["run"].Strategy.Matrix.Include {
			for pattern := range strings.FieldsSeq(g.Pkg) {
				folder, below := strings.CutSuffix(pattern, "/...")
				own := "." + filepath.ToSlash(strings.TrimPrefix(filepath.Dir(path), ".."))
				if own == folder || below && strings.HasPrefix(own, folder+"/") {
					in = append(in, g.Name)
					counts[g.Name] += n
				}
			}
		}
		if len(in) != 1 {
			t.Errorf("%s has %d fuzz targets, which are in the groups %q of the workflow, expected one", path, n, in)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	const most = 30 // in the 350 minutes of a job, with what compiles
	for name, n := range counts {
		if n > most {
			t.Errorf("group %s has %d targets, expected at most %d", name, n, most)
		}
	}
}

// Package goldentest compares test results with committed files. With the flag -update, which make golden sets, it
// writes the files instead. For example, Check(t, "testdata/plan.svg", svg) fails when svg differs from the file.
package goldentest

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "write the golden files anew")

// Check compares got with the file, or writes it.
func Check(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil { //nolint:gosec // committed files are for everybody
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s is out of date, run make golden (-want +got):\n%s", file, diff)
	}
}

// Each runs a parallel subtest for each file that matches pattern. At least one must match.
func Each(t *testing.T, pattern string, run func(t *testing.T, file string)) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files %s: %v", pattern, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), filepath.Ext(file)), func(t *testing.T) {
			t.Parallel()
			run(t, file)
		})
	}
}

// Archives runs a parallel subtest for each archive testdata/*.txtar. fill must replace the result files of the
// archive by the actual results.
func Archives(t *testing.T, fill func(t *testing.T, a *txtar.Archive)) {
	t.Helper()
	Each(t, "testdata/*.txtar", func(t *testing.T, file string) {
		t.Helper()
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		fill(t, a)
		Check(t, file, txtar.Format(a))
	})
}

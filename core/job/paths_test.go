package job_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tutti-server/tutti/core/job"
)

// TestPaths checks datasets against places, with symbolic links that lead out of them.
func TestPaths(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	data, other := filepath.Join(root, "data"), filepath.Join(root, "other")
	for _, dir := range []string{data, other} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{filepath.Join(data, "out"): other, filepath.Join(root, "alias"): data} {
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
	}
	paths := job.Paths{data, "s3://bucket/texts/"}
	for uri, want := range map[string]bool{
		data + "/in.jsonl":             true,
		data + "/*.jsonl":              true,
		data:                           true,
		data + "/new/folder":           true,
		root + "/alias/in.jsonl":       true,
		data + "/out/in.jsonl":         false, // the link leads out
		data + "/../other/in.jsonl":    false,
		data + "base/in.jsonl":         false,
		other + "/in.jsonl":            false,
		"/etc/passwd":                  false,
		"s3://bucket/texts":            true,
		"s3://bucket/texts/a.jsonl":    true,
		"s3://bucket/textsbase":        false,
		"s3://bucket/texts/../private": false,
		"s3://other/texts":             false,
		"gs://bucket/texts":            false,
	} {
		spec := &job.Spec{Input: job.Place{URI: uri}, Output: job.Place{URI: data + "/results"}}
		if err := paths.Check(spec); (err == nil) != want {
			t.Errorf("input %s: %v, want allowed: %v", uri, err, want)
		}
		spec.Input, spec.Output = spec.Output, spec.Input
		if err := paths.Check(spec); (err == nil) != want {
			t.Errorf("output %s: %v, want allowed: %v", uri, err, want)
		}
	}
	if job.Paths(nil).Check(&job.Spec{}) == nil {
		t.Error("no paths allow a job")
	}
}

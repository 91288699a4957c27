package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/internal/cli"
	"github.com/tutti-server/tutti/internal/cloud"
	"github.com/tutti-server/tutti/internal/cloud/cloudtest"
)

// TestPushBucket checks that a model can be pushed to a bucket of a real server, and pushed again with one file
// less and one more.
func TestPushBucket(t *testing.T) {
	t.Parallel()
	address := "s3://" + cloudtest.S3(t, "models") + "/models/repo"
	dir := filepath.Join(t.TempDir(), "m")
	put := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(want string, args ...string) {
		t.Helper()
		var out, errs bytes.Buffer
		if code := cli.Main(t.Context(), append([]string{"tutti", "repo"}, args...), &out, &errs, components()); code != 0 {
			t.Fatalf("%v ended with %d: %s", args, code, &errs)
		}
		if !strings.Contains(out.String(), want) {
			t.Errorf("%v printed %q, want %q", args, &out, want)
		}
	}
	b, err := cloud.Open(t.Context(), address, &cloud.Options{Env: func(string) string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	holds := func(want ...string) {
		t.Helper()
		list, err := b.List(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		var keys []string
		for _, o := range list {
			keys = append(keys, o.Key)
		}
		slices.Sort(keys)
		if d := cmp.Diff(want, keys); d != "" {
			t.Errorf("objects (-want +got):\n%s", d)
		}
	}
	put("config.pbtxt", `backend: "identity"`)
	put("1/data", "one")
	if err := os.MkdirAll(filepath.Join(dir, "2"), 0o700); err != nil {
		t.Fatal(err)
	}
	run("pushed m to "+address+": 3 files", "push", dir, address)
	holds("m/1/data", "m/2/", "m/config.pbtxt")
	if err := os.RemoveAll(filepath.Join(dir, "1")); err != nil {
		t.Fatal(err)
	}
	put("3/data", "three")
	run("pushed m to "+address+": 3 files", "push", dir, address)
	holds("m/2/", "m/3/data", "m/config.pbtxt")
}

//go:build cgo

package pytorch_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/backends/pytorch"
	"github.com/tutti-server/tutti/core/status"
)

// compiler creates a program that stands for a C++ compiler: it writes the source mark to the file after -o.
func compiler(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cxx")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	return path
}

func TestPrepare(t *testing.T) { // sets the environment
	lib := filepath.Join(t.TempDir(), "lib", "libtorch_cpu.so")
	if err := os.Mkdir(filepath.Dir(lib), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct{ cxx, want string }{
		"no compiler": {filepath.Join(t.TempDir(), "none"), "there is no C++ compiler: install g++"},
		"refused":     {compiler(t, "echo 'no header <here>' >&2; exit 1"), "exit status 1: no header <here>"},
		"no output":   {compiler(t, "exit 0"), pytorch.ShimFile()},
	} {
		t.Setenv("CXX", tc.cxx)
		if err := pytorch.Prepare(t.Context(), lib, nil); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: Prepare = %s error %v, want one with %q", name, status.CodeOf(err), err, tc.want)
		}
	}
	t.Setenv("CXX", compiler(t, `for a; do if [ "$last" = -o ]; then printf '%s' '`+pytorch.SourceMark()+`' >"$a"; fi; last=$a; done`))
	var progress bytes.Buffer
	for range 2 { // the second call does nothing
		if err := pytorch.Prepare(t.Context(), lib, &progress); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(progress.String(), "compiling"); n != 1 {
		t.Errorf("compiled %d times, want once:\n%s", n, &progress)
	}
	left, err := os.ReadDir(filepath.Dir(lib))
	if err != nil || len(left) != 1 || left[0].Name() != pytorch.ShimFile() {
		t.Errorf("left %v, %v, want the shim alone", left, err)
	}
}

//go:build cgo

package onnx

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tutti-server/tutti/core/status"
)

// oldRuntime is an old runtime: it returns NULL when asked for a newer interface.
const oldRuntime = `
static const void *api(unsigned v) { (void)v; return 0; }
static const char *version(void) { return "1.9.7"; }
static struct { const void *(*api)(unsigned); const char *(*version)(void); } base = {api, version};
const void *OrtGetApiBase(void) { return &base; }
`

func TestOldLibrary(t *testing.T) {
	t.Parallel()
	source, lib := filepath.Join(t.TempDir(), "old.c"), filepath.Join(t.TempDir(), "old.so")
	if err := os.WriteFile(source, []byte(oldRuntime), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "gcc", "-shared", "-fPIC", "-o", lib, source).CombinedOutput(); err != nil {
		t.Skipf("no working gcc: %v: %s", err, out)
	}
	_, err := openLibrary(lib, start{})
	if want := "ONNX Runtime '" + lib + "' is version 1.9.7, expected 1.24 or newer"; err == nil || err.Error() != want || status.CodeOf(err) != status.Unavailable {
		t.Errorf("openLibrary = %v, want %q", err, want)
	}
}

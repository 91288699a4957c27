//go:build cgo

package openvino

import (
	"path/filepath"
	"testing"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/preparedtest"
)

// LibraryPath returns the path of OpenVINO, or skips the test with the command that fetches it.
func LibraryPath(tb testing.TB) string {
	tb.Helper()
	return preparedtest.Runtime(tb, "openvino")
}

func TestOpenLibraryRefuses(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{"missing": filepath.Join(t.TempDir(), "none.so"), "other library": "libm.so.6"} {
		if l, err := openLibrary(path); err == nil || status.CodeOf(err) != status.Unavailable {
			t.Errorf("%s: openLibrary = %v, %v, want it unavailable", name, l, err)
		}
	}
}

func TestClean(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"Exception from src/core/src/a.cpp:12:\nCheck 'x' failed at src/b.cpp:3:\nthe  reason\n\n": "the  reason",
		"Exception from src/core/src/a.cpp:12:\n":                                                  "Exception from src/core/src/a.cpp:12:",
		"plain": "plain",
		"":      "",
	} {
		if got := clean(text); got != want {
			t.Errorf("clean(%q) = %q, want %q", text, got, want)
		}
	}
}

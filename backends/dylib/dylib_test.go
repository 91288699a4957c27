//go:build cgo

package dylib_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/backends/dylib"
)

func TestOpenSystemLibrary(t *testing.T) {
	t.Parallel()
	lib, err := dylib.Open("libm.so.6", false)
	if err != nil {
		t.Skipf("no libm.so.6 on this system: %v", err)
	}
	if p, err := lib.Symbol("cos"); err != nil || p == nil {
		t.Errorf("Symbol(cos) = %v, %v", p, err)
	}
	if _, err := lib.Symbol("tutti_no_such_symbol"); err == nil || !strings.Contains(err.Error(), "tutti_no_such_symbol") {
		t.Errorf("error of a missing symbol = %v, want its name in it", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	text := filepath.Join(t.TempDir(), "text.so")
	if err := os.WriteFile(text, []byte("not a library"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{
		"empty":   "",
		"nul":     "a\x00b",
		"missing": filepath.Join(t.TempDir(), "missing.so"),
		"text":    text,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lib, err := dylib.Open(path, false)
			if err == nil || lib != nil {
				t.Fatalf("Open(%q) = %v, %v, want an error", path, lib, err)
			}
			if len(path) > 4 && !strings.Contains(err.Error(), filepath.Base(path)) {
				t.Errorf("error %q does not name %s", err, path)
			}
		})
	}
}

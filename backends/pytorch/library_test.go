//go:build cgo

package pytorch

import (
	"path/filepath"
	"testing"

	"github.com/tutti-server/tutti/internal/preparedtest"
)

// LibraryPath returns the path of PyTorch with a shim of this source, or skips the test with the command that
// fetches it.
func LibraryPath(tb testing.TB) string {
	tb.Helper()
	path := preparedtest.Runtime(tb, "pytorch")
	if err := checkShim(filepath.Join(filepath.Dir(path), shimFile)); err != nil {
		preparedtest.Skip(tb, "pytorch", err)
	}
	return path
}

// SourceMark is the text that a compiled shim contains.
var SourceMark = sourceMark

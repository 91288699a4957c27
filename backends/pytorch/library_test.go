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
	if err := checkShim(filepath.Join(filepath.Dir(path), shimFile())); err != nil {
		preparedtest.Skip(tb, "pytorch", err)
	}
	return path
}

// GPULibraryPath returns the path of PyTorch with the stand-in for its CUDA library, or skips the test with the command that builds it.
func GPULibraryPath(tb testing.TB) string {
	tb.Helper()
	cpu := LibraryPath(tb)
	path := preparedtest.Script(tb, "pytorch-cuda", "prepare-torch-cuda", cpu)
	if err := checkShim(filepath.Join(filepath.Dir(path), shimFile())); err != nil {
		preparedtest.Skip(tb, "pytorch-cuda", err)
	}
	return path
}

// SourceMark is the text that a compiled shim contains.
var SourceMark = sourceMark

// ShimFile is the file name of the shim.
var ShimFile = shimFile

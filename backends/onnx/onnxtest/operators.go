package onnxtest

import (
	_ "embed" // for the source of the operators
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

//go:embed operators/twice.c
var operators []byte

// Operators compiles a library of custom operators to a file. It has tutti.test:Twice, which the model testdata/custom.onnx of package onnx
// uses: y = 2 x for float tensors. An x that begins with one of these values ends the process instead:
//
//	-1  a null dereference
//	-2  abort()
//	-3  a stack overflow
//	-4  _exit(3)
//
// It skips the test when there is no C compiler.
func Operators(tb testing.TB, file string) {
	tb.Helper()
	source := filepath.Join(tb.TempDir(), "twice.c")
	if err := os.WriteFile(source, operators, 0o600); err != nil {
		tb.Fatal(err)
	}
	compiler, err := exec.LookPath("gcc")
	if err != nil {
		tb.Skip("no gcc")
	}
	if out, err := exec.CommandContext(tb.Context(), compiler, "-shared", "-fPIC", "-O1", "-o", file, source).CombinedOutput(); err != nil { //nolint:gosec // a file of the test
		tb.Fatalf("the operators cannot be compiled: %v: %s", err, out)
	}
}

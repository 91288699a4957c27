// Package tensorrttest gives tests libraries that stand for TensorRT's runtime without a GPU: see ../standin/nvinfer.cpp.
package tensorrttest

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>

static int report(const char *path, char *text, size_t n) {
	void *lib = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
	if (lib == NULL) return 0;
	int (*f)(char *, size_t) = (int (*)(char *, size_t))dlsym(lib, "standin_report");
	int found = f != NULL ? f(text, n) : -1;
	dlclose(lib);
	return found;
}
*/
import "C"

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"unsafe"

	"github.com/tutti-server/tutti/internal/preparedtest"
)

// Versions are the first lines of plans by the major version of their library.
var Versions = map[int]string{10: "TUTTI-PLAN 10.3\n", 11: "TUTTI-PLAN 11.1\n"}

// Library returns the path of the library of a major version, 10 or 11. It skips the test when it was not built.
func Library(tb testing.TB, major int) string {
	tb.Helper()
	dir := preparedtest.Path(tb, "tensorrt-standin", func() (string, error) {
		root, err := preparedtest.Root()
		if err != nil {
			return "", err
		}
		dir := filepath.Join(root, "bin", "tensorrt")
		if _, err := os.Stat(dir); err != nil {
			return "", errors.New("run scripts/prepare-tensorrt")
		}
		return dir, nil
	})
	return filepath.Join(dir, "libnvinfer.so."+strconv.Itoa(major))
}

// Check fails the test when the library, in this process, has found mistakes of its caller.
func Check(tb testing.TB, path string) {
	tb.Helper()
	const size = 64 << 10
	text, name := (*C.char)(C.malloc(size)), C.CString(path)
	defer C.free(unsafe.Pointer(text))
	defer C.free(unsafe.Pointer(name))
	if n := C.report(name, text, size); n != 0 {
		tb.Errorf("the stand-in library found %d mistakes:\n%s", int(n), C.GoString(text))
	}
}

//go:build cgo

// Package onnxtest gives tests an ONNX Runtime with CUDA that needs no GPU and finds mistakes: see runtime/standin.h.
package onnxtest

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>

static int report(void *lib, char *text, size_t n) {
	int (*f)(char *, size_t) = (int (*)(char *, size_t))dlsym(lib, "tutti_ort_report");
	return f != NULL ? f(text, n) : -1;
}
*/
import "C"

import (
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/tutti-server/tutti/internal/preparedtest"
)

// Library returns the path of the stand-in. It skips the test when it was not built.
func Library(tb testing.TB) string {
	tb.Helper()
	return preparedtest.Script(tb, "onnxruntime-standin", "prepare-onnxruntime-standin")
}

// Report returns the faults, the counters and the options of providers of this process so far, and the number of faults.
func Report(tb testing.TB) (string, int) {
	tb.Helper()
	path := C.CString(Library(tb))
	defer C.free(unsafe.Pointer(path))
	lib := C.dlopen(path, C.RTLD_NOW)
	if lib == nil {
		tb.Fatal("the stand-in of ONNX Runtime cannot be opened")
	}
	const size = 64 << 10
	text := (*C.char)(C.malloc(size))
	defer C.free(unsafe.Pointer(text))
	n := C.report(lib, text, size)
	return C.GoString(text), int(n)
}

// Check fails the test when the stand-in has found a fault in this process.
func Check(tb testing.TB) {
	tb.Helper()
	if text, n := Report(tb); n != 0 {
		tb.Errorf("the stand-in of ONNX Runtime found %d faults:\n%s", n, text)
	}
}

// Count returns a counter of the report. For example, "synchronized": the runs that waited for the device; "up", "down" and "within", and
// "up_bytes" and so on: the copies of the stand-in itself, which represent kernels and the load of weights; "arena": the bytes at devices
// of its own arenas.
func Count(tb testing.TB, name string) int {
	tb.Helper()
	text, _ := Report(tb)
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), name+" "); ok {
			n, err := strconv.Atoi(v)
			if err != nil {
				tb.Fatal(err)
			}
			return n
		}
	}
	tb.Fatalf("the stand-in has no counter %s", name)
	return 0
}

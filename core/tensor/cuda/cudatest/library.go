//go:build cgo

package cudatest

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>

static int report(void *lib, char *text, size_t n, int reset) {
	int (*f)(char *, size_t, int) = (int (*)(char *, size_t, int))dlsym(lib, "tutti_check_report");
	return f != NULL ? f(text, n, reset) : -1;
}

static int set(void *lib, const char *name, long long v) {
	int (*f)(const char *, long long) = (int (*)(const char *, long long))dlsym(lib, "tutti_check_set");
	return f != NULL ? f(name, v) : 0;
}

typedef struct { int never, late, untimed, reached; float ms; } elapsed_results;

// elapsed calls cuEventElapsedTime with events in each state, in a stream of device 0.
static elapsed_results elapsed(void *lib) {
	int (*retain)(void **, int) = (int (*)(void **, int))dlsym(lib, "cuDevicePrimaryCtxRetain");
	int (*release)(int) = (int (*)(int))dlsym(lib, "cuDevicePrimaryCtxRelease_v2");
	int (*current)(void *) = (int (*)(void *))dlsym(lib, "cuCtxSetCurrent");
	int (*stream)(void **, unsigned, int) = (int (*)(void **, unsigned, int))dlsym(lib, "cuStreamCreateWithPriority");
	int (*end)(void *) = (int (*)(void *))dlsym(lib, "cuStreamDestroy_v2");
	int (*create)(void **, unsigned) = (int (*)(void **, unsigned))dlsym(lib, "cuEventCreate");
	int (*destroy)(void *) = (int (*)(void *))dlsym(lib, "cuEventDestroy_v2");
	int (*record)(void *, void *) = (int (*)(void *, void *))dlsym(lib, "cuEventRecord");
	int (*sync)(void *) = (int (*)(void *))dlsym(lib, "cuEventSynchronize");
	int (*time)(float *, void *, void *) = (int (*)(float *, void *, void *))dlsym(lib, "cuEventElapsedTime");
	elapsed_results r = {-1, -1, -1, -1, 0};
	void *context, *s, *a, *b, *c;
	if (retain(&context, 0) != 0 || current(context) != 0 || stream(&s, 1, 0) != 0 || create(&a, 0) != 0 || create(&b, 0) != 0 || create(&c, 2) != 0) return r;
	r.never = time(&r.ms, a, b);
	record(a, s), record(b, s), record(c, s);
	r.late = time(&r.ms, a, b);
	sync(c);
	r.untimed = time(&r.ms, a, c);
	r.reached = time(&r.ms, a, b);
	end(s), destroy(a), destroy(b), destroy(c), release(0);
	return r;
}
*/
import "C"

import (
	"testing"
	"unsafe"
)

// library is an open library.
type library struct{ handle unsafe.Pointer }

func load(tb testing.TB, path string) library {
	tb.Helper()
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	lib := C.dlopen(name, C.RTLD_NOW)
	if lib == nil {
		tb.Fatalf("the checking driver %s cannot be opened", path)
	}
	return library{lib}
}

func (l library) checking() bool {
	name := C.CString("tutti_check_report")
	defer C.free(unsafe.Pointer(name))
	return C.dlsym(l.handle, name) != nil
}

func (l library) report() (string, int) {
	if !l.checking() {
		return "", 0
	}
	const size = 64 << 10
	text := (*C.char)(C.malloc(size))
	defer C.free(unsafe.Pointer(text))
	n := C.report(l.handle, text, size, 0)
	return C.GoString(text), int(n)
}

func (l library) set(name string, v int64) bool {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	return C.set(l.handle, c, C.longlong(v)) != 0
}

// Elapsed is what cuEventElapsedTime returns.
type Elapsed struct {
	// Never, Late, Untimed and Reached are the codes for events that were never recorded, that their stream has not reached, one of which
	// has no timing, and that were reached.
	Never, Late, Untimed, Reached int
	// Ms is the time between the last ones.
	Ms float32
}

// ElapsedTimes calls cuEventElapsedTime with events in each state. The driver must be open.
func ElapsedTimes(tb testing.TB) Elapsed {
	tb.Helper()
	r := C.elapsed(shared(tb).lib.handle)
	return Elapsed{Never: int(r.never), Late: int(r.late), Untimed: int(r.untimed), Reached: int(r.reached), Ms: float32(r.ms)}
}

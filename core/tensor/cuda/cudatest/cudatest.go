// Package cudatest gives tests a CUDA driver without a GPU that finds mistakes: see driver.c.
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
	"fmt"
	"os"
	"strings"
	"testing"
	"unsafe"
)

// Variable names the library in the environment of tests. With libcuda.so.1 the tests use the machine's GPUs, of which no faults
// are known.
const Variable = "TUTTI_TEST_CUDA_DRIVER"

// Library returns the path of the driver's library. It skips the test when it was not built.
func Library(tb testing.TB) string {
	tb.Helper()
	path := os.Getenv(Variable)
	if path == "" {
		tb.Skip(Variable + " names no checking driver: run make test")
	}
	return path
}

func handle(tb testing.TB) unsafe.Pointer {
	tb.Helper()
	path := C.CString(Library(tb))
	defer C.free(unsafe.Pointer(path))
	lib := C.dlopen(path, C.RTLD_NOW)
	if lib == nil {
		tb.Fatal("the checking driver cannot be opened")
	}
	return lib
}

// Checking reports whether the library is the checking driver.
func Checking(tb testing.TB) bool {
	tb.Helper()
	name := C.CString("tutti_check_report")
	defer C.free(unsafe.Pointer(name))
	return C.dlsym(handle(tb), name) != nil
}

// Require skips a test that only the checking driver can carry out.
func Require(tb testing.TB) {
	tb.Helper()
	if !Checking(tb) {
		tb.Skip("needs the checking driver")
	}
}

// Report returns the faults and counters of this process so far, and the number of faults. On a GPU both are empty.
func Report(tb testing.TB) (string, int) {
	tb.Helper()
	if !Checking(tb) {
		return "", 0
	}
	const size = 64 << 10
	text := (*C.char)(C.malloc(size))
	defer C.free(unsafe.Pointer(text))
	n := C.report(handle(tb), text, size, 0)
	return C.GoString(text), int(n)
}

// Counters are the counts of the driver in this process so far.
type Counters struct {
	// Copies from the host, to the host, within a device and between devices, and their bytes.
	Up, UpBytes, Down, DownBytes, Within, WithinBytes, Peer, PeerBytes uint64
	Kernels, Allocs                                                    uint64
	// Held is the bytes of device memory that are not released.
	Held uint64
	// Streams, Events, Pinned and Contexts are how many there are now.
	Streams, Events, Pinned, Contexts uint64
	// Refused is the allocations that failed because of a setting.
	Refused uint64
	// BusyNs is the time that the devices took because of the settings work_us and slow_mbs. What is measured is never less.
	BusyNs uint64
}

// Count returns the counters. On a GPU all are 0.
func Count(tb testing.TB) (c Counters) {
	tb.Helper()
	text, _ := Report(tb)
	for line := range strings.Lines(text) {
		var name string
		var n, size uint64
		if fields, _ := fmt.Sscan(line, &name, &n, &size); fields < 2 {
			continue
		}
		switch name {
		case "up":
			c.Up, c.UpBytes = n, size
		case "down":
			c.Down, c.DownBytes = n, size
		case "within":
			c.Within, c.WithinBytes = n, size
		case "peer":
			c.Peer, c.PeerBytes = n, size
		case "kernels":
			c.Kernels = n
		case "allocs":
			c.Allocs = n
		case "held":
			c.Held = n
		case "streams":
			c.Streams = n
		case "events":
			c.Events = n
		case "pinned":
			c.Pinned = n
		case "contexts":
			c.Contexts = n
		case "refused":
			c.Refused = n
		case "busy":
			c.BusyNs = n
		}
	}
	return c
}

// Settled fails the test when the process holds anything of the driver.
func Settled(tb testing.TB) {
	tb.Helper()
	if c := Count(tb); c.Held+c.Streams+c.Events+c.Pinned+c.Contexts > 0 {
		tb.Errorf("%d bytes of device memory, %d streams, %d events, %d regions of pinned memory and %d contexts are left", c.Held, c.Streams, c.Events, c.Pinned, c.Contexts)
	}
}

// Check fails the test when the driver has found a fault in this process.
func Check(tb testing.TB) {
	tb.Helper()
	if text, n := Report(tb); n != 0 {
		tb.Errorf("the checking driver found %d faults:\n%s", n, text)
	}
}

// Set changes a setting of the driver: oom, oom_at, oom_for, seed, late_us, slow_mbs, work_us, lose, lost_at, revive, exclusive. It skips the
// test on a GPU.
func Set(tb testing.TB, name string, v int64) {
	tb.Helper()
	Require(tb)
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	if C.set(handle(tb), c, C.longlong(v)) == 0 {
		tb.Fatalf("the checking driver has no setting %s", name)
	}
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
	r := C.elapsed(handle(tb))
	return Elapsed{Never: int(r.never), Late: int(r.late), Untimed: int(r.untimed), Reached: int(r.reached), Ms: float32(r.ms)}
}

package onnx

/*
#cgo CFLAGS: -O2
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/tutti-server/tutti/backends/dylib"
	"github.com/tutti-server/tutti/core/status"
)

// minVersion is the first release with the API version of ort.h.
const minVersion = "1.24"

// library is an opened ONNX Runtime. It is reference counted: the backend, each model and each output in memory of the runtime
// hold a reference, so outputs may outlive their model.
type library struct {
	rt      *C.tt_runtime
	path    string
	version string
	refs    atomic.Int64
}

// environments serialises creating and releasing the OrtEnv: a process has one, and creating it fails while the previous one is
// being released.
var environments sync.Mutex

// start has the settings of the OrtEnv. The first backend of a process determines them.
type start struct {
	shared       bool // sessions share global thread pools
	intra, inter int  // threads of the pools, 0 for the number of cores
	memory       int64
}

// openLibrary opens the library at path and creates its environment. The caller holds the only reference.
func openLibrary(path string, s start) (*library, error) {
	so, err := dylib.Open(path, nil)
	if err != nil {
		return nil, status.Errorf(status.Unavailable, "unable to open ONNX Runtime: %w", err)
	}
	base, err := so.Symbol("OrtGetApiBase")
	if err != nil {
		return nil, status.Errorf(status.Unavailable, "'%s' is not an ONNX Runtime library: %w", path, err)
	}
	rt := (*C.tt_runtime)(C.calloc(1, C.sizeof_tt_runtime))
	if rt == nil {
		return nil, status.Errorf(status.Internal, "no memory for ONNX Runtime")
	}
	text := new(*C.char)
	old := C.tt_open(base, rt, text)
	l := &library{rt: rt, path: path, version: C.GoString(*text)}
	l.refs.Store(1)
	if old != 0 {
		C.free(unsafe.Pointer(rt))
		return nil, status.Errorf(status.Unavailable, "ONNX Runtime '%s' is version %s, expected %s or newer", path, l.version, minVersion)
	}
	environments.Lock()
	err = l.check(C.tt_start(rt, &C.tt_start_settings{
		shared_threads: flag(s.shared), intra_threads: C.int(s.intra), inter_threads: C.int(s.inter), memory_limit: C.size_t(s.memory),
	}))
	environments.Unlock()
	if err != nil {
		l.release()
		return nil, status.Prefixf(err, "unable to start ONNX Runtime '%s': ", path)
	}
	return l, nil
}

func (l *library) retain() *library {
	l.refs.Add(1)
	return l
}

// providers returns the names of the execution providers of the library.
func (l *library) providers() ([]string, error) {
	names, n := new(**C.char), new(C.int)
	if err := l.check(C.tt_providers(l.rt, names, n)); err != nil {
		return nil, err
	}
	defer C.tt_providers_free(l.rt, *names, *n)
	list := make([]string, 0, *n)
	for _, name := range unsafe.Slice(*names, int(*n)) {
		list = append(list, C.GoString(name))
	}
	return list, nil
}

// release drops a reference. The last one releases the environment.
func (l *library) release() {
	if l.refs.Add(-1) > 0 {
		return
	}
	environments.Lock()
	inOwnThread(func() { C.tt_stop(l.rt) })
	environments.Unlock()
	C.free(unsafe.Pointer(l.rt))
	l.rt = nil
}

// Error codes of the runtime that map to a status code. All others are internal errors.
const (
	ortNoSuchFile     = 3
	ortNotImplemented = 9
)

// check converts a status of the runtime to an error and releases it. Nil is success.
func (l *library) check(st *C.OrtStatus) error {
	if st == nil {
		return nil
	}
	defer C.tt_forget(l.rt, st)
	var code C.int
	text := C.GoString(C.tt_text(l.rt, st, &code))
	text = fmt.Sprintf("onnx runtime error %d: %s", code, text)
	switch code {
	case ortNoSuchFile:
		return status.Errorf(status.NotFound, "%s", text)
	case ortNotImplemented:
		return status.Errorf(status.Unsupported, "%s", text)
	default:
		return status.Errorf(status.Internal, "%s", text)
	}
}

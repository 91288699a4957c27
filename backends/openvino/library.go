package openvino

/*
#cgo CFLAGS: -O2
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/tutti-server/tutti/backends/dylib"
	"github.com/tutti-server/tutti/core/status"
)

// library is one opened OpenVINO: its functions. The backend, each model and each output whose memory the runtime owns
// hold a reference, so an output may outlive its model.
type library struct {
	f       *C.ov_functions
	path    string
	version string
	refs    atomic.Int64
}

// openLibrary loads the runtime at path.
func openLibrary(path string) (*library, error) {
	so, err := dylib.Open(path, nil)
	if err != nil {
		return nil, status.Errorf(status.Unavailable, "unable to open OpenVINO: %w", err)
	}
	f := (*C.ov_functions)(C.calloc(1, C.sizeof_ov_functions))
	if f == nil {
		return nil, status.Errorf(status.Internal, "no memory for OpenVINO")
	}
	for i := range C.tov_functions() {
		address, err := so.Symbol(C.GoString(C.tov_function(i)))
		if err != nil {
			C.free(unsafe.Pointer(f))
			return nil, status.Errorf(status.Unavailable, "'%s' is not an OpenVINO C library of release 2026 or newer: %w", path, err)
		}
		C.tov_bind(f, i, address)
	}
	version, _, _ := strings.Cut(owned(C.tov_version(f)), "-") // a build's name starts with its release
	l := &library{f: f, path: path, version: version}
	l.refs.Store(1)
	return l, nil
}

func (l *library) retain() *library {
	l.refs.Add(1)
	return l
}

// release drops a reference. The last one frees the function table; the shared library stays open.
func (l *library) release() {
	if l.refs.Add(-1) == 0 {
		C.free(unsafe.Pointer(l.f))
		l.f = nil
	}
}

// owned returns the C string at p and frees it.
func owned(p *C.char) string {
	defer C.free(unsafe.Pointer(p))
	return C.GoString(p)
}

// Status codes of the runtime that map to a status code. All others are internal errors.
const (
	ovNotImplemented    = -2
	ovParameterMismatch = -4
	ovCancelled         = -13
)

// check converts a status of the runtime to an error, or nil.
func check(e C.tov_error) error {
	if e.text == nil {
		return nil
	}
	text := clean(owned(e.text))
	switch e.code {
	case ovCancelled:
		return status.ErrCancelled
	case ovNotImplemented:
		return status.Errorf(status.Unsupported, "openvino error %d: %s", int(e.code), text)
	case ovParameterMismatch:
		return status.Errorf(status.InvalidArg, "openvino error %d: %s", int(e.code), text)
	default:
		return status.Errorf(status.Internal, "openvino error %d: %s", int(e.code), text)
	}
}

// clean removes source locations of the runtime from an error text, and joins its lines.
func clean(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "Exception from src/") {
			continue
		}
		if rest, ok := strings.CutPrefix(line, "Check '"); ok {
			if _, after, found := strings.Cut(rest, "' failed at "); found && strings.HasSuffix(after, ":") {
				continue
			}
		}
		lines = append(lines, line)
	}
	if len(lines) == 0 {
		return strings.Join(strings.Fields(text), " ")
	}
	return strings.Join(lines, " ")
}

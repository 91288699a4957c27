package openvino

/*
#cgo CFLAGS: -O2
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"runtime"
	"strings"
	"unsafe"

	"github.com/tutti-server/tutti/backends/dylib"
	"github.com/tutti-server/tutti/core/status"
)

// library is one opened OpenVINO: its functions. It is never closed, because outputs in memory of the runtime may outlive the
// backend.
type library struct {
	f       *C.ov_functions
	path    string
	version string
}

// openLibrary loads the runtime at path.
func openLibrary(path string) (*library, error) {
	so, err := dylib.Open(path, false)
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
	return &library{f: f, path: path, version: version}, nil
}

// core is an ov_core, which reads and compiles models with the plugins of the devices.
//
// It is created and freed in a separate thread. The CPU plugin replaces the signal stack of the thread that loads it, and frees that
// stack in the thread that unloads it; a thread of the Go runtime would crash at its next signal.
type core struct {
	lib  *library
	c    *C.ov_core
	over chan struct{} // closed to free the core
	gone chan struct{} // closed when the core is freed
}

// openCore creates a core. extension is the path of a library of operators, or empty.
func openCore(l *library, extension string) (*core, error) {
	c := &core{lib: l, over: make(chan struct{}), gone: make(chan struct{})}
	started := make(chan error)
	go c.live(extension, started)
	if err := <-started; err != nil {
		<-c.gone
		return nil, err
	}
	return c, nil
}

// live is the core's thread. It exits with the goroutine, because it is never unlocked.
func (c *core) live(extension string, started chan<- error) {
	runtime.LockOSThread()
	defer close(c.gone)
	made := new(*C.ov_core)
	if err := check(C.tov_core(c.lib.f, made)); err != nil {
		started <- err
		return
	}
	c.c = *made
	defer C.tov_core_free(c.lib.f, c.c)
	C.tov_load_plugin(c.lib.f, c.c, cstr("CPU")) // compiling reports a missing plugin
	var err error
	if extension != "" {
		if err = check(C.tov_extend(c.lib.f, c.c, cstr(extension))); err != nil {
			err = status.Prefixf(err, "extension '%s': ", extension)
		}
	}
	if started <- err; err == nil {
		<-c.over
	}
}

// close frees the core. The models that it compiled must have been closed.
func (c *core) close() {
	close(c.over)
	<-c.gone
}

// owned returns the C string at p and frees it.
func owned(p *C.char) string {
	defer C.free(unsafe.Pointer(p))
	return C.GoString(p)
}

// cstr returns s with a zero byte, as an argument of one call of C code that does not keep it.
func cstr(s string) *C.char { return (*C.char)(unsafe.Pointer(unsafe.StringData(s + "\x00"))) }

func flag(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

// check converts a status of the runtime to an error, or nil.
func check(e C.tov_error) error {
	if e.text == nil {
		return nil
	}
	text, class := clean(owned(e.text)), status.Internal
	switch e.code {
	case -13: // cancelled
		return status.ErrCancelled
	case -2: // not implemented
		class = status.Unsupported
	case -4: // parameter mismatch
		class = status.InvalidArg
	}
	return status.Errorf(class, "openvino error %d: %s", int(e.code), text)
}

// clean removes source locations of the runtime from an error text, and joins its lines.
func clean(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "Exception from src/") ||
			strings.HasPrefix(line, "Check '") && strings.Contains(line, "' failed at ") && strings.HasSuffix(line, ":") {
			continue
		}
		lines = append(lines, line)
	}
	if len(lines) == 0 {
		lines = strings.Fields(text)
	}
	return strings.Join(lines, " ")
}

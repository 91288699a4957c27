// Package dylib opens shared libraries at run time (dlopen), so that the server is not linked against native runtimes and uses those
// that are installed. Libraries are never unloaded: native runtimes leave threads and exit handlers that execute their code.
package dylib

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdlib.h>

static void *tt_dlopen(const char *path, _Bool global, char **why) {
	void *h = dlopen(path, RTLD_NOW | RTLD_NODELETE | (global ? RTLD_GLOBAL : RTLD_LOCAL));
	if (h == NULL) *why = dlerror();
	return h;
}

static void *tt_dlsym(void *h, const char *name, char **why) {
	dlerror();
	void *p = dlsym(h, name);
	*why = dlerror();
	return p;
}
*/
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"unsafe"
)

// Library is an open shared library. It is safe for concurrent use.
type Library struct {
	handle unsafe.Pointer
	path   string
}

// Open opens the library at path; the system loader searches for a bare file name, for example "libm.so.6". global makes the symbols
// visible to libraries that are opened later (RTLD_GLOBAL), which plugins need. The error has the loader's text, which names a missing
// dependency.
func Open(path string, global bool) (*Library, error) {
	if path == "" || strings.IndexByte(path, 0) >= 0 {
		return nil, fmt.Errorf("unusable library path %q", path)
	}
	// dlerror is per thread: the goroutine must stay on its thread until the text is copied.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cpath := C.CString(path)
	defer C.free(unsafe.Pointer(cpath))
	why := new(*C.char)
	h := C.tt_dlopen(cpath, C._Bool(global), why)
	if h == nil {
		return nil, errors.New(loaderText(*why, "cannot open "+path))
	}
	return &Library{handle: h, path: path}, nil
}

// Symbol returns the address of an exported function or variable.
func (l *Library) Symbol(name string) (unsafe.Pointer, error) {
	if name == "" || strings.IndexByte(name, 0) >= 0 {
		return nil, fmt.Errorf("unusable symbol name %q", name)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cname := C.CString(name)
	defer C.free(unsafe.Pointer(cname))
	why := new(*C.char)
	p := C.tt_dlsym(l.handle, cname, why)
	if p == nil {
		return nil, fmt.Errorf("no symbol %s in %s: %s", name, l.path, loaderText(*why, "its address is null"))
	}
	return p, nil
}

func loaderText(why *C.char, fallback string) string {
	if why == nil {
		return fallback
	}
	return C.GoString(why)
}

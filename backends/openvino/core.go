package openvino

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"runtime"
	"unsafe"

	"github.com/tutti-server/tutti/core/status"
)

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
	cpu := C.CString("CPU")
	C.tov_load_plugin(c.lib.f, c.c, cpu) // compiling reports a missing plugin
	C.free(unsafe.Pointer(cpu))
	err := c.extend(extension)
	if started <- err; err == nil {
		<-c.over
	}
}

func (c *core) extend(extension string) error {
	if extension == "" {
		return nil
	}
	p := C.CString(extension)
	defer C.free(unsafe.Pointer(p))
	if err := check(C.tov_extend(c.lib.f, c.c, p)); err != nil {
		return status.Prefixf(err, "extension '%s': ", extension)
	}
	return nil
}

// close frees the core. The models that it compiled must have been closed.
func (c *core) close() {
	close(c.over)
	<-c.gone
}

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

// core is where models are read and compiled, with the plugins of its devices.
//
// It lives in a thread of its own. The plugin of the processor gives the thread that loads it another stack for signals,
// and takes it back in the thread that frees it; a Go thread that keeps such a stack dies of its next signal.
type core struct {
	lib  *library
	c    *C.ov_core
	over chan struct{} // closed when it is to end
	gone chan struct{} // closed when it has
}

// openCore starts a core, with an extension's operators if there is one.
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

// live is the core's thread. It ends with the goroutine, for it stays locked.
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
	C.tov_load_plugin(c.lib.f, c.c, cpu) // where there is none, compiling says so
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

// close ends the core. Everything that was compiled by it is gone before.
func (c *core) close() {
	close(c.over)
	<-c.gone
}

package tritonlib

/*
#cgo CFLAGS: -O2 -std=gnu11 -Wall
#cgo LDFLAGS: -ldl -lpthread
#include <stdlib.h>
#include "host.h"
*/
import "C"

import (
	"encoding/gob"
	"fmt"
	"os"
	"strings"
	"unsafe"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/subprocess"
)

// mode is that of a child.
var mode = subprocess.Mode{Argument: "__backendlibrary", Guard: "TUTTI_BACKEND_LIBRARY"}

// noticesFD is the descriptor of the notices in a child.
const noticesFD = subprocess.First

// Hidden reports whether the program was started as a child. It must then call Serve, and nothing else.
func Hidden(args []string) bool { return mode.Hidden(args) }

// Serve runs a child: it loads the library that the server describes, and executes batches until the server closes the socket. It returns the
// exit status.
func Serve() int {
	child := mode.Begin(1)
	socket := child.Socket
	in, out := gob.NewDecoder(socket), gob.NewEncoder(socket)
	var about description
	if err := in.Decode(&about); err != nil {
		fmt.Fprintln(os.Stderr, "expected a server on descriptor 3:", err)
		return 1
	}
	made := replyOf(load(child, &about))
	if text := C.tl_completed(); text != nil {
		made.Config = C.GoString(text)
		C.free(unsafe.Pointer(text))
	}
	if err := out.Encode(made); err != nil || made.Failed {
		return 1
	}
	for {
		var c command
		if err := in.Decode(&c); err != nil {
			break
		}
		if err := out.Encode(replyOf(obey(&c))); err != nil {
			break
		}
	}
	if err := taken(C.tl_unload()); err != nil {
		fmt.Fprintln(os.Stderr, "unloading the backend library:", err)
		return 1
	}
	return 0
}

func replyOf(err error) *reply {
	if err == nil {
		return &reply{}
	}
	return &reply{Failed: true, Code: status.CodeOf(err), Text: status.Text(err)}
}

// taken returns an error of the library, and frees it.
func taken(e *C.TRITONSERVER_Error) error {
	if e == nil {
		return nil
	}
	defer C.TRITONSERVER_ErrorDelete(e)
	return status.Errorf(codeOf(uint64(C.TRITONSERVER_ErrorCode(e))+1), "%s", clean(C.GoString(C.TRITONSERVER_ErrorMessage(e))))
}

// strs makes C strings, which free frees.
type strs struct{ list []unsafe.Pointer }

func (l *strs) of(s string) *C.char {
	c := C.CString(s)
	l.list = append(l.list, unsafe.Pointer(c))
	return c
}

func (l *strs) free() {
	for _, p := range l.list {
		C.free(p)
	}
}

// load maps the shared memory, provides the calls and loads the library with the model.
func load(child *subprocess.Child, about *description) error {
	own, all, err := child.Map(about.Layout)
	if err != nil {
		return status.Reasonf(status.MemoryLimit, "its process cannot map the shared memory: %w", err)
	}
	C.tl_notices(noticesFD, C.int(about.Verbose))
	err = taken(C.tl_setup((*C.uint8_t)(unsafe.Pointer(&own[0])), C.size_t(len(own)), (*C.uint8_t)(unsafe.Pointer(&all[0])), C.size_t(about.Slots), slotSize))
	if err == nil {
		err = provide(symbols())
	}
	if err != nil {
		return err
	}
	complete := C.int(0)
	if about.Complete {
		complete = 1
	}
	var s strs
	defer s.free()
	return taken(C.tl_load(s.of(about.Library), s.of(about.Backend), s.of(about.Folder), s.of(about.Settings), s.of(about.Model), s.of(about.ModelDir),
		C.uint64_t(about.Version), s.of(about.Config), complete)) //nolint:gosec // not negative
}

// obey does what a command says.
func obey(c *command) error {
	var s strs
	defer s.free()
	joined := func(lists ...[]string) *C.char {
		var all strings.Builder
		for _, list := range lists {
			for _, text := range list {
				all.WriteString(text + "\x00")
			}
		}
		p := C.CBytes([]byte(all.String() + "\x00"))
		s.list = append(s.list, p)
		return (*C.char)(p)
	}
	switch c.Op {
	case opBind:
		return taken(C.tl_bind(joined(c.Inputs, c.Outputs, c.States), C.uint32_t(len(c.Inputs)), C.uint32_t(len(c.Outputs)), C.uint32_t(len(c.States))))
	case opInstance:
		return taken(C.tl_instance(C.uint32_t(c.Index), s.of(c.Name), C.int(c.Kind), 0, joined(c.Profiles), C.uint32_t(len(c.Profiles)))) //nolint:gosec // small
	case opCloseInstance:
		return taken(C.tl_close_instance(C.uint32_t(c.Index))) //nolint:gosec // small
	default:
		return taken(C.tl_unload())
	}
}

// symbols returns the calls that are provided, with the addresses of their functions.
func symbols() (list []symbol) {
	for i := C.size_t(0); ; i++ {
		s := C.tl_symbol_at(i)
		if s.name == nil {
			return list
		}
		list = append(list, symbol{C.GoString(s.name), uint64(uintptr(s.address))})
	}
}

// calls returns the names of the calls that are provided.
func calls() (names []string) {
	for _, s := range symbols() {
		names = append(names, s.name)
	}
	return names
}

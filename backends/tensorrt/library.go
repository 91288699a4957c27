//go:build cgo

package tensorrt

/*
#cgo CFLAGS: -O2
#include <stdlib.h>
#include "trt.h"
*/
import "C"

import (
	"cmp"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"github.com/tutti-server/tutti/backends/dylib"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor/cuda"
	"github.com/tutti-server/tutti/internal/runtimes"
)

// library is TensorRT's open runtime library. It is never unloaded.
type library struct {
	c    *C.tt_trt_library // in C memory: runtimes keep its address
	path string
	lean bool // it has no optimised kernels of its own version: it runs version-compatible plans
}

// openLibrary opens the library and the plugins beside it. explicit is the backend setting library-path; if it is empty, package
// runtimes finds the library.
func openLibrary(explicit string, plugins []string) (*library, error) {
	path, err := runtimes.Find("tensorrt", explicit)
	if err != nil {
		return nil, err
	}
	so, err := dylib.Open(path, false)
	if err != nil {
		return nil, status.Reasonf(status.RuntimeMissing, "unable to open TensorRT: %w", err)
	}
	l := &library{path: path, c: (*C.tt_trt_library)(C.calloc(1, C.sizeof_tt_trt_library)), lean: strings.Contains(filepath.Base(path), "lean")}
	version, err := so.Symbol("getInferLibVersion")
	if err == nil {
		var create unsafe.Pointer
		create, err = so.Symbol("createInferRuntime_INTERNAL")
		*(*unsafe.Pointer)(unsafe.Pointer(&l.c.version)) = version
		*(*unsafe.Pointer)(unsafe.Pointer(&l.c.create)) = create
	}
	if err != nil {
		return nil, status.Reasonf(status.RuntimeMissing, "'%s' is no library of TensorRT 10 or 11: %w", path, err)
	}
	if want := C.tttrt_open(l.c); want != nil {
		return nil, status.Reasonf(status.RuntimeMissing, "'%s' is of TensorRT %s, %s: install another release, or run 'tutti runtime fetch tensorrt'",
			path, l.version(), C.GoString(want))
	}
	return l, l.openPlugins(plugins)
}

// openPlugins opens TensorRT's own plugins, where they lie beside the library, and those of the user, which register themselves.
func (l *library) openPlugins(plugins []string) error {
	own, found := l.beside("nvinfer_plugin")
	if found {
		so, err := dylib.Open(own, false)
		if err == nil {
			var register unsafe.Pointer
			if register, err = so.Symbol("initLibNvInferPlugins"); err == nil {
				if C.tttrt_register(l.c, register) == 0 {
					err = fmt.Errorf("'%s' cannot register them", own)
				}
			}
		}
		if err != nil {
			return status.Reasonf(status.RuntimeMissing, "unable to open TensorRT's plugins: %w", err)
		}
	}
	for _, path := range plugins {
		if _, err := dylib.Open(path, false); err != nil {
			return status.Errorf(status.InvalidArg, "unable to open the TensorRT plugin '%s' of --backend-config=tensorrt,plugins: %w", path, err)
		}
	}
	return nil
}

// beside returns the library of a name in the folder of this one. For example, libnvinfer_plugin.so.10.
func (l *library) beside(name string) (string, bool) {
	folder := filepath.Dir(l.path)
	for _, suffix := range []string{"." + strconv.Itoa(int(l.c.major)), ""} {
		list, _ := filepath.Glob(filepath.Join(folder, "lib"+name+".so"+suffix))
		if len(list) > 0 {
			return list[0], true
		}
	}
	return "", false
}

// version returns the version as TensorRT writes it. For example, 10.15.1.
func (l *library) version() string {
	n := int(l.c.number)
	patch := n % 100
	if n < 100000 {
		patch = n % 10
	}
	return fmt.Sprintf("%d.%d.%d", l.c.major, l.c.minor, patch)
}

// why is the text of a failed call.
type why [C.TT_TRT_TEXT]C.char

// text returns TensorRT's errors in one line.
func (w *why) text() string { return shorten(C.GoString(&w[0])) }

func shorten(text string) string {
	return cmp.Or(strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " "), "no reason given")
}

// engineRuntime is a runtime of TensorRT at a device.
type engineRuntime struct {
	c   *C.tt_trt_runtime
	lib *library
	log *slog.Logger
}

// runtime makes a runtime at a device. It must be closed.
func (l *library) runtime(d *cuda.Device, log *slog.Logger) (*engineRuntime, error) {
	set, ctx, err := d.Entry()
	if err != nil {
		return nil, err
	}
	var w why
	c := C.tttrt_runtime(l.c, &C.tt_trt_device{set: (*[0]byte)(set), context: ctx}, &w[0])
	if c == nil {
		return nil, status.Reasonf(status.RuntimeMissing, "TensorRT %s cannot start at %s: %s", l.version(), d.Place(), w.text())
	}
	return &engineRuntime{c: c, lib: l, log: log}, nil
}

func (r *engineRuntime) close() {
	r.report()
	C.tttrt_runtime_free(r.c)
}

// report writes the messages that TensorRT logged to the model's log.
func (r *engineRuntime) report() {
	var text why
	var severity C.int
	for C.tttrt_log(r.c, &text[0], &severity) != 0 {
		message := slog.String("message", text.text())
		switch {
		case r.log == nil:
		case severity <= C.TT_TRT_ERROR:
			r.log.Error("TensorRT", message)
		case severity == C.TT_TRT_WARNING:
			r.log.Warn("TensorRT", message)
		default:
			r.log.Debug("TensorRT", message)
		}
	}
}

// engine deserializes a plan, which may be released afterwards.
func (r *engineRuntime) engine(plan []byte, hostCode bool) (unsafe.Pointer, error) {
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(unsafe.SliceData(plan))
	var w why
	e := C.tttrt_engine(r.c, unsafe.Pointer(unsafe.SliceData(plan)), C.size_t(len(plan)), flag(hostCode), &w[0])
	r.report()
	if e != nil {
		return e, nil
	}
	hint := "a plan runs on the TensorRT release and the kind of GPU that it was built for: build it again with this release"
	if r.lib.lean {
		hint = "this is the lean runtime, which runs plans that were built with --versionCompatible only"
	}
	return nil, status.Errorf(status.InvalidArg, "TensorRT %s cannot read the plan: %s (%s)", r.lib.version(), w.text(), hint)
}

func flag(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

// slotOf returns function i of the table of virtual functions of a major version. The slot is -1 where the version has none.
func slotOf(major, i int) (class, name string, slot int, ok bool) {
	var c, n *C.char
	slot = int(C.tttrt_slot(C.int(major), C.int(i), &c, &n))
	if slot == -2 {
		return "", "", 0, false
	}
	return C.GoString(c), C.GoString(n), slot, true
}

package cuda

/*
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "driver.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"unsafe"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/compute"
)

// Library is the name of the driver's library, for the system's loader.
const Library = "libcuda.so.1"

// minVersion is the oldest driver that has every function of the table and reads the PTX of package kernels: CUDA 11.8.
const minVersion = 11080

// Driver is an open CUDA driver. It is safe for concurrent use.
type Driver struct {
	table   *C.tutti_cuda // in C memory, because C keeps its address
	path    string
	version int
	count   int

	mu      sync.Mutex
	devices []*Device // guarded by mu
}

// Open opens the driver's library and initializes the driver. An empty path is Library. It makes no context. The error has code
// Unavailable, and says what is missing: the library, a newer driver, or a device.
func Open(path string) (*Driver, error) {
	if path == "" {
		path = Library
	}
	// The loader's text is per thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cpath := C.CString(path)
	defer C.free(unsafe.Pointer(cpath))
	d := &Driver{path: path, table: (*C.tutti_cuda)(C.calloc(1, C.sizeof_tutti_cuda))}
	missing := new(*C.char)
	if why := C.tutti_cuda_open(d.table, cpath, missing); why != nil {
		defer C.free(unsafe.Pointer(d.table))
		if *missing != nil {
			return nil, status.Reasonf(status.RuntimeMissing, "CUDA driver %s has no function %s; expected a driver of CUDA 11.8 or newer: update the NVIDIA driver",
				path, C.GoString(*missing))
		}
		return nil, status.Reasonf(status.RuntimeMissing, "CUDA driver: %s; install the NVIDIA driver, or run the model with KIND_CPU", C.GoString(why))
	}
	var version, count C.int
	if r := C.tutti_cuda_init(d.table, &version, &count); r != 0 {
		err := d.errorOf(r, "cuInit", -1)
		C.free(unsafe.Pointer(d.table))
		return nil, err
	}
	d.version, d.count = int(version), int(count)
	if d.version < minVersion {
		C.free(unsafe.Pointer(d.table))
		return nil, status.Reasonf(status.RuntimeMissing, "the CUDA driver supports CUDA %s, expected 11.8 or newer: update the NVIDIA driver", d.Version())
	}
	return d, nil
}

// Version returns the newest CUDA release that the driver supports. For example, 13.0.
func (d *Driver) Version() string { return fmt.Sprintf("%d.%d", d.version/1000, d.version%1000/10) }

// Count returns the number of devices that the driver shows. CUDA_VISIBLE_DEVICES limits and orders them.
func (d *Driver) Count() int { return d.count }

// Options configures devices.
type Options struct {
	// Limit bounds the memory in bytes that a device hands out, by device number; 0 or a missing number is no bound. Beyond it an
	// allocation fails; Device.SpillTo is the bound beyond which it gives slower memory.
	Limit map[int]int64
	// Tensors is such a bound of the memory that native runtimes did not take by AllocNative.
	Tensors map[int]int64
	// NoPeers keeps devices from reading each other's memory. Copies between them go through the host, by the driver.
	NoPeers bool
	// Keep is how many unused bytes the pool of a device keeps for reuse, by device number. A missing number keeps all.
	Keep map[int]int64
	// Only lists the devices to use; empty for all.
	Only []int
	// Kernels loads the functions of native steps onto a device, on their first use. Nil for none. It is kernels.Load.
	Kernels func(*Device) (compute.Kernels, error)
}

// Devices describes the devices, in order of their number. Nothing is allocated on them before the first use.
func (d *Driver) Devices(o Options) ([]*Device, error) {
	for _, i := range o.Only {
		if i < 0 || i >= d.count {
			return nil, status.Errorf(status.InvalidArg, "there is no GPU %d: the CUDA driver shows %d (CUDA_VISIBLE_DEVICES limits them)", i, d.count)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []*Device
	for i := range d.count {
		if len(o.Only) > 0 && !slices.Contains(o.Only, i) {
			continue
		}
		v, err := d.describe(i, o)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	d.devices = append(d.devices, list...)
	return list, nil
}

// Close closes the devices and reports memory and streams that are still held. It may be called twice.
func (d *Driver) Close() error {
	d.mu.Lock()
	list := d.devices
	d.devices = nil
	d.mu.Unlock()
	var errs []error
	for _, v := range list {
		errs = append(errs, v.close())
	}
	return errors.Join(errs...)
}

// started returns the devices that have a context.
func (d *Driver) started() (list []*Device) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, v := range d.devices {
		if v.running.Load() {
			list = append(list, v)
		}
	}
	return list
}

// Error is a failed call of the driver.
type Error struct {
	// Call is the driver's function. For example, cuMemAllocFromPoolAsync.
	Call string
	// Code and Name are the driver's. For example, 2 and CUDA_ERROR_OUT_OF_MEMORY.
	Code int
	Name string
	// Text is the driver's description.
	Text string
	// Device is the device's number, -1 for calls of none.
	Device int
}

// Error returns the call, the device, the driver's text, and what to do.
func (e *Error) Error() string {
	at := ""
	if e.Device >= 0 {
		at = fmt.Sprintf(" at %s", tensor.Place{Kind: tensor.Device, ID: int16(e.Device)})
	}
	return fmt.Sprintf("%s%s: %s (%s)%s", e.Call, at, e.Text, e.Name, remedy[e.Code])
}

// Codes of the driver.
const (
	outOfMemory = 2
	noDevice    = 100
	notReady    = 600
)

// remedy says what to do about a code.
var remedy = map[int]string{
	outOfMemory: ": lower instance counts or batch sizes, or run fewer models on this GPU",
	3:           ": the driver is not initialized; check that the process may open /dev/nvidia*",
	noDevice:    ": there is no GPU, or CUDA_VISIBLE_DEVICES hides it",
	101:         ": check the number against CUDA_VISIBLE_DEVICES",
	46:          ": another process has the GPU in exclusive mode",
	802:         ": wait until the fabric manager of the machine has started",
	803:         ": the NVIDIA library and kernel module differ: restart the machine after the driver's update",
	804:         ": the CUDA compatibility library does not support this GPU: remove it from the library path",
	222:         ": the driver is older than the kernels: update the NVIDIA driver",
	209:         ": the GPU is of an architecture that the kernels do not support",
}

// lasting are the codes after which the context is unusable: every further call returns the same. For most of them CUDA's documentation
// says that the process must be ended and started again, so no call tries to make another context.
var lasting = []int{214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 810, 999}

// errorOf returns the error of a call: code Unavailable for what another device, a later time or another machine may do.
func (d *Driver) errorOf(r C.cu_result, call string, device int) error {
	var name, text *C.char
	C.tutti_cuda_error(d.table, r, &name, &text) //nolint:gocritic // cgo's check of the address
	e := &Error{Call: call, Code: int(r), Name: fmt.Sprintf("CUDA error %d", int(r)), Text: "unknown error", Device: device}
	if name != nil {
		e.Name = C.GoString(name)
	}
	if text != nil {
		e.Text = C.GoString(text)
	}
	return &status.Error{Code: status.Unavailable, Msg: e.Error(), Err: e}
}

// codeOf returns the driver's code in an error, 0 when there is none.
func codeOf(err error) int {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return 0
}

package cuda

/*
#include <stdlib.h>
#include "driver.h"
*/
import "C"

import (
	"math"
	"unsafe"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/compute"
)

// Module is loaded device code. It is safe for concurrent use.
type Module struct {
	device *Device
	handle C.cu_module
}

// Load compiles PTX for the device and loads it. The module stays until the process ends.
func (v *Device) Load(ptx []byte) (*Module, error) {
	if err := v.run(); err != nil {
		return nil, err
	}
	text := C.CString(string(ptx)) // ends with a zero byte, as the driver expects
	defer C.free(unsafe.Pointer(text))
	m := &Module{device: v}
	a := C.tutti_cuda_module_load(v.driver.table, v.ctx, unsafe.Pointer(text))
	m.handle = a.module
	return m, v.check(a.result, "cuModuleLoadDataEx")
}

// HasKernels reports whether the device was made with Options.Kernels. See compute.Can.
func (v *Device) HasKernels() bool { return v.load != nil }

// Kernels returns the functions of native steps at the device. The first call loads them, and makes the device's context; a failure is
// tried again. See compute.Of.
//
// hot: a lock once they are loaded.
func (v *Device) Kernels() (compute.Kernels, error) {
	v.loading.Lock()
	defer v.loading.Unlock()
	if v.kernels != nil || v.load == nil {
		return v.kernels, nil
	}
	k, err := v.load(v)
	if err != nil {
		return nil, err
	}
	v.kernels = k
	return k, nil
}

// Kernel is a function of a module.
type Kernel struct {
	call   string // for errors
	handle C.cu_function
}

// Kernel returns the function of a name.
func (m *Module) Kernel(name string) (*Kernel, error) {
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	a := C.tutti_cuda_module_function(m.device.driver.table, m.device.ctx, m.handle, text)
	return &Kernel{call: "cuLaunchKernel " + name, handle: a.function}, m.device.check(a.result, "cuModuleGetFunction "+name)
}

// Grid is the shape of a launch: Blocks blocks of Threads threads.
type Grid struct{ Blocks, Threads [3]uint32 }

// Over returns a one-dimensional grid of at least n threads.
func Over(n int) Grid {
	const threads = 256
	return Grid{Blocks: [3]uint32{uint32((n + threads - 1) / threads), 1, 1}, Threads: [3]uint32{threads, 1, 1}}
}

// maxArgs bounds the arguments of a kernel.
const maxArgs = 24

// Args are the arguments of a kernel, in order.
type Args struct {
	values [maxArgs]uint64
	n      int
}

func (a *Args) add(v uint64) *Args {
	a.values[a.n] = v
	a.n++
	return a
}

// Buffer appends the address of the byte at off.
func (a *Args) Buffer(b *tensor.Buffer, off int) *Args {
	return a.add(uint64(uintptr(b.Pointer())) + uint64(off))
}

// Int appends an int of 32 bits.
func (a *Args) Int(v int) *Args { return a.add(uint64(uint32(int32(v)))) }

// Long appends an integer of 64 bits.
func (a *Args) Long(v int64) *Args { return a.add(uint64(v)) }

// Float appends a float of 32 bits.
func (a *Args) Float(v float32) *Args { return a.add(uint64(math.Float32bits(v))) }

// Double appends a float of 64 bits.
func (a *Args) Double(v float64) *Args { return a.add(math.Float64bits(v)) }

// launch is the memory of a launch, so that its arguments are not allocated.
type launch struct {
	grid Grid
	args Args
}

// Launch puts a kernel into the stream. It holds no references: as for work of native runtimes, the caller calls UsedUntil and
// SetReady with the stream's next event.
//
// hot: no allocation.
func (s *Stream) Launch(k *Kernel, g Grid, a *Args) error {
	if err := s.usable(); err != nil {
		return err
	}
	l := &s.launch
	l.grid, l.args = g, *a
	r := C.tutti_cuda_launch(s.device.driver.table, s.device.ctx, k.handle,
		(*C.uint)(unsafe.Pointer(&l.grid.Blocks)), (*C.uint)(unsafe.Pointer(&l.grid.Threads)), s.handle, (*C.uint64_t)(unsafe.Pointer(&l.args.values)), C.int(a.n))
	if err := s.device.check(r, k.call); err != nil {
		return err
	}
	s.Used()
	return nil
}

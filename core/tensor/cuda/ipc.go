package cuda

/*
#include "driver.h"
*/
import "C"

import (
	"unsafe"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

var _ tensor.Importer = (*Device)(nil)

// Import is OpenHandle of the bytes of a handle.
func (v *Device) Import(handle []byte) (*tensor.Buffer, error) {
	h, err := ParseHandle(handle)
	if err != nil {
		return nil, err
	}
	return v.OpenHandle(h)
}

// OpenHandle maps the memory that another process has exported, and returns it as a buffer at the device; its release unmaps it. The
// buffer ends with the exporter's allocation. A handle of a process that has ended, or of this process, is InvalidArg; a lost or full
// device is Unavailable.
func (v *Device) OpenHandle(h Handle) (*tensor.Buffer, error) {
	if err := v.run(); err != nil {
		return nil, err
	}
	t := v.driver.table
	a := C.tutti_cuda_ipc_open(t, v.ctx, (*C.cu_ipc_handle)(unsafe.Pointer(&h)))
	if err := v.check(a.result, "cuIpcOpenMemHandle"); err != nil {
		if codeOf(err) == outOfMemory || v.Lost() != nil {
			return nil, err
		}
		return nil, status.Errorf(status.InvalidArg, "the IPC handle names no memory of a running process at %s: %w", v.Place(), err)
	}
	r := C.tutti_cuda_address_range(t, v.ctx, a.p)
	if err := v.check(r.result, "cuMemGetAddressRange"); err != nil {
		_ = v.check(C.tutti_cuda_ipc_close(t, v.ctx, a.p), "cuIpcCloseMemHandle")
		return nil, err
	}
	n := uint64(r.n) - uint64(a.p-r.base)
	return tensor.NewBuffer((*imported)(v), v.Place(), pointer(uintptr(a.p)), int(n)), nil
}

// imported owns mapped memory of other processes.
type imported Device

// Free waits for the last uses, because the unmapping is not ordered with streams.
func (m *imported) Free(b *tensor.Buffer) {
	v := (*Device)(m)
	for _, e := range b.TakeOrder() {
		_ = e.Wait() // a lost device says so elsewhere
	}
	_ = v.check(C.tutti_cuda_ipc_close(v.driver.table, v.ctx, C.cu_ptr(uintptr(b.Pointer()))), "cuIpcCloseMemHandle")
}

// AllocShared returns n bytes outside the pool, and their handle for another process. As memory of native runtimes they are in no bound of
// tensors: pinned memory cannot stand in for them.
func (v *Device) AllocShared(n int) (*tensor.Buffer, Handle, error) {
	var h Handle
	if err := v.run(); err != nil {
		return nil, h, err
	}
	if _, err := v.reserve(n, &v.native); err != nil {
		return nil, h, err
	}
	t := v.driver.table
	a := C.tutti_cuda_alloc(t, v.ctx, C.size_t(max(n, 1)))
	err := v.check(a.result, "cuMemAlloc")
	if codeOf(err) == outOfMemory {
		if err = v.Trim(); err == nil { // the pool may keep unused memory
			a = C.tutti_cuda_alloc(t, v.ctx, C.size_t(max(n, 1)))
			err = v.check(a.result, "cuMemAlloc")
		}
	}
	if err != nil {
		v.unreserve(n, &v.native)
		return nil, h, status.Prefixf(err, "cannot allocate %d bytes: ", n)
	}
	b := tensor.NewBuffer((*exported)(v), v.Place(), pointer(uintptr(a.p)), n)
	if err := v.check(C.tutti_cuda_ipc_get(t, v.ctx, (*C.cu_ipc_handle)(unsafe.Pointer(&h)), a.p), "cuIpcGetMemHandle"); err != nil {
		b.Release()
		return nil, h, err
	}
	return b, h, nil
}

// exported owns memory outside the pool.
type exported Device

// Free waits for the last uses, which may be of other devices, and releases the memory.
func (m *exported) Free(b *tensor.Buffer) {
	v := (*Device)(m)
	for _, e := range b.TakeOrder() {
		_ = e.Wait() // a lost device says so elsewhere
	}
	_ = v.check(C.tutti_cuda_free(v.driver.table, v.ctx, C.cu_ptr(uintptr(b.Pointer()))), "cuMemFree")
	v.unreserve(b.Len(), &v.native)
}

package cuda

/*
#include "driver.h"
*/
import "C"

import (
	"sync/atomic"
	"unsafe"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// Alloc returns n bytes that every stream may use at once. It waits for the device only when it has to reuse memory whose last use
// has not ended.
func (v *Device) Alloc(n int) (*tensor.Buffer, error) {
	if err := v.run(); err != nil {
		return nil, err
	}
	b, err := v.alloc(n, v.now)
	if err != nil {
		return nil, err
	}
	if err := v.check(C.tutti_cuda_stream_sync(v.driver.table, v.ctx, v.now.handle), "cuStreamSynchronize"); err != nil {
		b.Release()
		return nil, err
	}
	return b, nil
}

// AllocNative is Alloc for memory that a native runtime keeps or works in, such as weights: it is always at the device, and the bound of
// SpillTo, which is for tensors, does not count it.
func (v *Device) AllocNative(n int) (*tensor.Buffer, error) {
	if err := v.run(); err != nil {
		return nil, err
	}
	b, err := v.allocNative(n, v.now)
	if err != nil {
		return nil, err
	}
	if err := v.check(C.tutti_cuda_stream_sync(v.driver.table, v.ctx, v.now.handle), "cuStreamSynchronize"); err != nil {
		b.Release()
		return nil, err
	}
	return b, nil
}

// allocNative is alloc for a native runtime.
func (v *Device) allocNative(n int, s *Stream) (*tensor.Buffer, error) {
	if _, err := v.reserve(n, &v.native); err != nil {
		return nil, err
	}
	return v.take(n, s, &v.native)
}

// alloc returns n bytes that the stream may use from now on.
func (v *Device) alloc(n int, s *Stream) (*tensor.Buffer, error) {
	full, err := v.reserve(n, nil)
	if err != nil {
		return nil, err
	}
	if full {
		return v.spilled(n, s)
	}
	return v.take(n, s, nil)
}

// native is the memory of native runtimes at a device, and owns its buffers.
type native struct {
	device *Device
	inUse  atomic.Int64
}

// Free implements tensor.Owner.
func (m *native) Free(b *tensor.Buffer) {
	n := int64(b.Len())
	m.device.Free(b)
	m.inUse.Add(-n)
}

// take returns n reserved bytes, of a native runtime if of is not nil.
func (v *Device) take(n int, s *Stream, of *native) (*tensor.Buffer, error) {
	p, err := v.tryAlloc(n, s)
	if codeOf(err) == outOfMemory {
		if err = v.relieve(); err == nil {
			p, err = v.tryAlloc(n, s)
		}
	}
	if err != nil {
		v.unreserve(n, of)
		return nil, status.Prefixf(err, "cannot allocate %d bytes: ", n)
	}
	if of != nil {
		return v.wrap(of, p, n), nil
	}
	return v.wrap(v, p, n), nil
}

// reserve counts n bytes as used, by a native runtime if of is not nil. It fails when the limit is reached, and full reports that the bound
// for SpillTo is: a request for too much must not fail another one meanwhile.
func (v *Device) reserve(n int, of *native) (full bool, err error) {
	limit := v.info.Memory
	if v.limit > 0 {
		limit = min(limit, v.limit)
	}
	if of != nil { // first, so that no tensor spills because of it meanwhile
		of.inUse.Add(int64(n))
	}
	for {
		used := v.inUse.Load()
		if n < 0 || int64(n) > limit-used {
			if of != nil {
				of.inUse.Add(-int64(n))
			}
			return false, status.Reasonf(status.MemoryLimit, "cannot allocate %d bytes at %s: %d of %d bytes are in use", n, v.Place(), used, limit)
		}
		if of == nil && (v.spill.bound > 0 || v.tensors > 0) {
			tensors := used - v.native.inUse.Load()
			if v.tensors > 0 && int64(n) > v.tensors-tensors {
				return false, status.Reasonf(status.MemoryLimit, "cannot allocate %d bytes at %s: tensors have %d of %d bytes, see --cuda-memory-pool-byte-size", n, v.Place(), tensors, v.tensors)
			}
			if v.spill.bound > 0 && int64(n) > v.spill.bound-tensors {
				return true, nil
			}
		}
		if v.inUse.CompareAndSwap(used, used+int64(n)) {
			return false, nil
		}
	}
}

// unreserve takes n bytes out of what is counted, after their release.
func (v *Device) unreserve(n int, of *native) {
	v.inUse.Add(-int64(n))
	if of != nil {
		of.inUse.Add(-int64(n))
	}
}

func (v *Device) tryAlloc(n int, s *Stream) (uintptr, error) {
	a := C.tutti_cuda_alloc_async(v.driver.table, v.ctx, C.size_t(max(n, 1)), v.pool, s.handle)
	return uintptr(a.p), v.check(a.result, "cuMemAllocFromPoolAsync")
}

// pointer returns an address of the device, which Go must not follow, as tensor.Buffer holds it.
func pointer(p uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }

// wrap returns a buffer of device memory with an owner, a used one if there is one.
func (v *Device) wrap(owner tensor.Owner, p uintptr, n int) *tensor.Buffer {
	at := pointer(p)
	v.mu.Lock()
	defer v.mu.Unlock()
	if k := len(v.spare); k > 0 {
		b := v.spare[k-1]
		v.spare = v.spare[:k-1]
		b.Reset(owner, v.Place(), at, n)
		return b
	}
	return tensor.NewBuffer(owner, v.Place(), at, n)
}

// Free puts the release of the memory behind its last uses. tensor.Buffer calls it. It does not block.
//
// Memory that one stream used is released in that stream, whose next allocation then takes it without an event.
func (v *Device) Free(b *tensor.Buffer) {
	order, p := b.TakeOrder(), C.cu_ptr(uintptr(b.Pointer()))
	if s := onlyStream(order); s == nil || s.device != v || !s.release(p) {
		v.freeBehind(order, p)
	}
	v.inUse.Add(-int64(b.Len()))
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.spare) < maxSpare {
		v.spare = append(v.spare, b)
	}
}

// freeBehind puts the release of memory behind events of several streams. Memory whose last uses cannot be awaited is lost with the
// device, and never used again.
func (v *Device) freeBehind(order []tensor.Event, p C.cu_ptr) {
	for _, e := range order {
		if e.WaitOn(v.frees) != nil && e.Wait() != nil {
			return
		}
	}
	v.frees.release(p)
}

// onlyStream returns the stream of all events, nil when there are several or none.
func onlyStream(order []tensor.Event) (s *Stream) {
	for _, e := range order {
		c, ok := e.(*event)
		if !ok || s != nil && s != c.stream {
			return nil
		}
		s = c.stream
	}
	return s
}

const maxSpare = 256

// Trim waits for pending releases and gives the pool's unused memory back to the device, where other libraries of the process can
// use it.
func (v *Device) Trim() error {
	if err := v.run(); err != nil {
		return err
	}
	t := v.driver.table
	// A release may be in any stream.
	if err := v.check(C.tutti_cuda_context_sync(t, v.ctx), "cuCtxSynchronize"); err != nil {
		return err
	}
	return v.check(C.tutti_cuda_pool_trim(t, v.pool, 0), "cuMemPoolTrimTo")
}

// Memory is the use of a device's memory in bytes.
type Memory struct {
	// Free and Total are the device's, of all processes.
	Free, Total int64
	// Reserved is the size of the pool, Used the part of it that is allocated.
	Reserved, Used int64
}

// Usage returns the use of the device's memory. Before the first use of the device only Total is set.
func (v *Device) Usage() (Memory, error) {
	if !v.running.Load() {
		return Memory{Total: v.info.Memory}, nil
	}
	var free, total C.size_t
	if err := v.check(C.tutti_cuda_memory_info(v.driver.table, v.ctx, &free, &total), "cuMemGetInfo"); err != nil {
		return Memory{}, err
	}
	var reserved, used C.uint64_t
	if err := v.check(C.tutti_cuda_pool_usage(v.driver.table, v.pool, &reserved, &used), "cuMemPoolGetAttribute"); err != nil {
		return Memory{}, err
	}
	return Memory{Free: int64(free), Total: int64(total), Reserved: int64(reserved), Used: int64(used)}, nil
}

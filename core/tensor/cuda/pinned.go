package cuda

/*
#include "driver.h"
*/
import "C"

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// Pinned allocates host memory that devices copy to and from without a detour. Beyond its limit it returns memory of the host's
// allocator, as Triton does: copies are slower then, and no request fails for it. It is safe for concurrent use.
type Pinned struct {
	*tensor.Pool
	host  tensor.Allocator
	spill atomic.Int64
	first func() // OnSpill
}

// OnSpill sets a function that is called once, in its own goroutine, at the first allocation beyond the limit. It must be set before
// the first allocation.
func (p *Pinned) OnSpill(f func()) { p.first = f }

// NewPinned returns a pool of at most limit bytes of pinned memory, which the context of v maps and every device may use. Memory is
// pinned when it is first needed.
func NewPinned(v *Device, limit int64, host tensor.Allocator) *Pinned {
	return &Pinned{Pool: tensor.NewPoolOf(tensor.Place{Kind: tensor.Pinned}, &pinner{device: v, limit: limit}), host: host}
}

// Alloc implements tensor.Allocator.
func (p *Pinned) Alloc(n int) (*tensor.Buffer, error) {
	b, err := p.Pool.Alloc(n)
	if err == nil || n < 0 {
		return b, err
	}
	if p.spill.Add(1) == 1 && p.first != nil {
		go p.first()
	}
	return p.host.Alloc(n)
}

// Spilled returns how many allocations got memory of the host because the limit was reached.
func (p *Pinned) Spilled() int64 { return p.spill.Load() }

// Close gives the memory of the pool back to the driver, before the devices are closed, or only the unused if some is held. Nothing may be
// allocated afterwards.
func (p *Pinned) Close() { p.Pool.Close() }

// spill is where tensors go that a device has no room for.
type spill struct {
	bound int64 // bytes of held buffers at the device; 0: none
	to    tensor.Allocator
	note  tensor.Spill // of all buffers
	count atomic.Int64
	first func() // OnSpill
}

// OnSpill sets a function that is called once, in its own goroutine, at the first allocation that gets pinned memory. It must be set
// before the device is used.
func (v *Device) OnSpill(f func()) { v.spill.first = f }

// SpillTo makes allocations beyond bound bytes of device memory take pinned memory of to, which the device reads over the bus: slower,
// but no request fails for it. It must be called before the device is used.
func (v *Device) SpillTo(to *Pinned, bound int64) {
	v.spill.to, v.spill.bound = to.Pool, bound
	v.spill.note = tensor.Spill{
		From: v.Place(), To: to.Place(),
		Reason: fmt.Sprintf("the pool of %d bytes is full, see --cuda-memory-pool-byte-size", bound),
	}
}

// Spilled returns the number of allocations that got pinned memory.
func (v *Device) Spilled() int64 { return v.spill.count.Load() }

// spilled returns pinned memory as a buffer at the device. s is the stream that asks for it.
func (v *Device) spilled(n int, s *Stream) (*tensor.Buffer, error) {
	host, err := v.spill.to.Alloc(n)
	if err != nil {
		return nil, status.Reasonf(status.MemoryLimit, "cannot allocate %d bytes at %s: the pool of %d bytes is full, and so is the pinned memory: raise --cuda-memory-pool-byte-size or --pinned-memory-pool-byte-size: %w",
			n, v.Place(), v.spill.bound, err)
	}
	if v.spill.count.Add(1) == 1 && v.spill.first != nil {
		go v.spill.first()
	}
	s.spilled.Add(int64(n))
	return tensor.NewBuffer(&spilled{v, host}, v.Place(), host.Pointer(), n), nil
}

// spilled owns a buffer of pinned memory at a device.
type spilled struct {
	device *Device
	host   *tensor.Buffer
}

// Spill implements the method that tensor.Buffer.Spill looks for.
func (m *spilled) Spill() *tensor.Spill { return &m.device.spill.note }

// Free gives the pinned memory back once its last uses are complete.
func (m *spilled) Free(b *tensor.Buffer) {
	s := m.device.frees
	for _, e := range b.TakeOrder() {
		if e.WaitOn(s) != nil {
			_ = e.Wait() // a lost device executes nothing any more
		}
	}
	s.keep(m.host)
}

// pinner maps pinned memory.
type pinner struct {
	device *Device
	limit  int64
	mapped atomic.Int64
}

func (p *pinner) Map(n int) ([]byte, error) {
	if all := p.mapped.Add(int64(n)); all > p.limit {
		p.mapped.Add(-int64(n))
		return nil, fmt.Errorf("cannot pin %d bytes: %d of %d bytes are in use", n, all-int64(n), p.limit)
	}
	err := p.device.run()
	if err == nil {
		const portable = 1 // for every context
		a := C.tutti_cuda_host_alloc(p.device.driver.table, p.device.ctx, C.size_t(n), portable)
		if err = p.device.check(a.result, "cuMemHostAlloc"); err == nil {
			return unsafe.Slice((*byte)(a.p), n), nil
		}
	}
	p.mapped.Add(-int64(n))
	return nil, err
}

func (p *pinner) Unmap(m []byte) {
	p.mapped.Add(-int64(len(m)))
	// Only a lost device refuses it, and its pages go with the process.
	_ = p.device.check(C.tutti_cuda_host_free(p.device.driver.table, p.device.ctx, unsafe.Pointer(unsafe.SliceData(m))), "cuMemFreeHost")
}

package subprocess

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/tutti-server/tutti/core/tensor"
)

// Memory is the shared memory of the children of a backend: that of the server's tensors. It is safe for concurrent use.
type Memory struct {
	mu   sync.Mutex
	pool *tensor.Pool // guarded by mu
}

// sharer is an allocator that can move into shared memory.
type sharer interface {
	Share() (*tensor.SharedMemory, error)
}

// For returns the memory that children map, and a pool in it for tensors that are elsewhere. alloc is that of the server's tensors, which move
// into the memory with the first call.
func (m *Memory) For(alloc tensor.Allocator) (*tensor.SharedMemory, *tensor.Pool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pool == nil {
		pool := tensor.NewPool()
		if s, ok := alloc.(sharer); ok {
			shared, err := s.Share()
			if err != nil {
				return nil, nil, err
			}
			pool.ShareIn(shared)
		}
		m.pool = pool
	}
	shared, err := m.pool.Share()
	return shared, m.pool, err
}

// rangeMost is the address space of a process for outputs. It is smaller where the shared memory is.
const rangeMost = 1 << 32

// Range is the part of a shared memory that one process writes. It is there while somebody uses it: the process, an execution, or an output
// in it. It is safe for concurrent use.
type Range struct {
	Mem []byte

	shared *tensor.SharedMemory
	freed  func(id uint64)
	uses   atomic.Int64

	mu    sync.Mutex
	spare []*output // guarded by mu
}

// NewRange returns a range that the caller uses. freed is called with the number of each output of Wrap that is released.
func NewRange(shared *tensor.SharedMemory, freed func(id uint64)) (*Range, error) {
	mem, err := shared.Map(min(rangeMost, shared.Len()/256))
	if err != nil {
		return nil, err
	}
	r := &Range{Mem: mem, shared: shared, freed: freed}
	r.uses.Store(1)
	return r, nil
}

// Layout says where a range is, for the child: see Child.Map.
type Layout struct{ RangeOff, RangeLen, SharedLen int }

// Layout returns where the range is.
func (r *Range) Layout() Layout {
	off, _ := r.shared.Offset(unsafe.Pointer(unsafe.SliceData(r.Mem)))
	return Layout{RangeOff: off, RangeLen: len(r.Mem), SharedLen: r.shared.Len()}
}

// Use keeps the range. It returns false when that is too late; else Release must follow.
func (r *Range) Use() bool {
	for n := r.uses.Load(); n > 0; n = r.uses.Load() {
		if r.uses.CompareAndSwap(n, n+1) {
			return true
		}
	}
	return false
}

// Release gives up one use of the range.
func (r *Range) Release() {
	if r.uses.Add(-1) == 0 {
		r.shared.Unmap(r.Mem)
	}
}

// output is an output in a range.
type output struct {
	buf tensor.Buffer
	of  *Range
	id  uint64
}

// Wrap returns a part of the range, which the caller uses, as a buffer. The buffer uses the range until its last reference is released.
//
// hot: no allocation in the steady state.
func (r *Range) Wrap(id uint64, mem []byte) *tensor.Buffer {
	r.mu.Lock()
	var o *output
	if n := len(r.spare); n > 0 {
		o, r.spare = r.spare[n-1], r.spare[:n-1]
	}
	r.mu.Unlock()
	r.uses.Add(1) // the caller uses it
	if o == nil {
		o = &output{of: r}
	}
	o.id = id
	o.buf.Reset(o, tensor.Place{}, unsafe.Pointer(unsafe.SliceData(mem)), len(mem))
	return &o.buf
}

// Free implements tensor.Owner.
func (o *output) Free(*tensor.Buffer) {
	r := o.of
	r.freed(o.id)
	r.mu.Lock()
	r.spare = append(r.spare, o)
	r.mu.Unlock()
	r.Release()
}

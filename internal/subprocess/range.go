package subprocess

import (
	"sync/atomic"

	"github.com/tutti-server/tutti/core/tensor"
)

// rangeMost is the address space of a process for outputs. It is smaller where the shared memory is.
const rangeMost = 1 << 32

// Range is the part of a shared memory that one process writes. It is there while somebody uses it: the process, an execution, or an output
// in it. It is safe for concurrent use.
type Range struct {
	Mem []byte

	shared *tensor.SharedMemory
	uses   atomic.Int64
}

// NewRange returns a range that the caller uses.
func NewRange(shared *tensor.SharedMemory) (*Range, error) {
	mem, err := shared.Map(min(rangeMost, shared.Len()/256))
	if err != nil {
		return nil, err
	}
	r := &Range{Mem: mem, shared: shared}
	r.uses.Store(1)
	return r, nil
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

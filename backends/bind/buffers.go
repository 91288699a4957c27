package bind

import (
	"sync"
	"unsafe"

	"github.com/tutti-server/tutti/core/tensor"
)

// Buffers wraps memory of a runtime as tensors, without a copy. The tensors may outlive the instance and the model. Buffers is
// safe for concurrent use.
type Buffers struct {
	release func(handle unsafe.Pointer)

	mu   sync.Mutex
	free *runtimeBuffer // guarded by mu
}

// runtimeBuffer is a tensor.Buffer over memory of the runtime.
type runtimeBuffer struct {
	buf    tensor.Buffer
	handle unsafe.Pointer
	of     *Buffers
	next   *runtimeBuffer
}

var _ tensor.Owner = (*runtimeBuffer)(nil)

// NewBuffers returns Buffers whose memory is freed by release, which receives the runtime's handle. release may be called by any
// goroutine, and after the model was closed.
func NewBuffers(release func(handle unsafe.Pointer)) *Buffers { return &Buffers{release: release} }

// Wrap returns a tensor over n bytes at data. The handle moves: it is released with the last reference to the tensor.
//
// hot: it reuses the buffers of released tensors, so it does not allocate in the steady state.
func (l *Buffers) Wrap(handle, data unsafe.Pointer, n int, at tensor.Place, d tensor.DType, s tensor.Shape) tensor.Tensor {
	v := l.get()
	v.handle = handle
	v.buf.Reset(v, at, data, n)
	return tensor.Tensor{DType: d, Shape: s, Buf: &v.buf, Len: n}
}

func (l *Buffers) get() *runtimeBuffer {
	l.mu.Lock()
	v := l.free
	if v != nil {
		l.free, v.next = v.next, nil
	}
	l.mu.Unlock()
	if v == nil {
		v = &runtimeBuffer{of: l}
	}
	return v
}

// Free implements tensor.Owner.
func (v *runtimeBuffer) Free(*tensor.Buffer) {
	l := v.of
	l.release(v.handle)
	v.handle = nil
	l.mu.Lock()
	v.next, l.free = l.free, v
	l.mu.Unlock()
}

package bind

import (
	"sync"
	"unsafe"

	"github.com/tutti-server/tutti/core/tensor"
)

// Lender hands memory that a runtime owns on as tensors, without a copy. The tensors may outlive
// whoever made them.
type Lender struct {
	release func(handle unsafe.Pointer)

	mu   sync.Mutex
	free *lent // guarded by mu
}

// lent is memory of the runtime's, seen as a buffer.
type lent struct {
	buf    tensor.Buffer
	handle unsafe.Pointer
	of     *Lender
	next   *lent
}

var _ tensor.Owner = (*lent)(nil)

// NewLender returns a lender of memory that release gives back, by the runtime's handle of it.
// It is called from any goroutine, after everything else of the model is closed, too.
func NewLender(release func(handle unsafe.Pointer)) *Lender { return &Lender{release: release} }

// Tensor returns n bytes at data as a tensor. It has the handle, which moves, released when it is.
//
// hot: no allocation once as many tensors were held at a time before.
func (l *Lender) Tensor(handle, data unsafe.Pointer, n int, at tensor.Place, d tensor.DType, s tensor.Shape) tensor.Tensor {
	v := l.take()
	v.handle = handle
	v.buf.Reset(v, at, data, n)
	return tensor.Tensor{DType: d, Shape: s, Buf: &v.buf, Len: n}
}

func (l *Lender) take() *lent {
	l.mu.Lock()
	v := l.free
	if v != nil {
		l.free, v.next = v.next, nil
	}
	l.mu.Unlock()
	if v == nil {
		v = &lent{of: l}
	}
	return v
}

// Free gives the memory back to the runtime.
func (v *lent) Free(*tensor.Buffer) {
	l := v.of
	l.release(v.handle)
	v.handle = nil
	l.mu.Lock()
	v.next, l.free = l.free, v
	l.mu.Unlock()
}

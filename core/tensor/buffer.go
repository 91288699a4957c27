package tensor

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Kind is a kind of memory: ordinary, pinned for copies to devices, or a device's own.
type Kind uint8

// The kinds of memory.
const (
	Host Kind = iota
	Pinned
	Device
)

// Place is where memory lives, for example host or device:0. The zero Place is ordinary host memory.
type Place struct {
	Kind Kind
	ID   int16
}

// String returns the place as traces print it: host, pinned, device:0.
func (p Place) String() string {
	switch p.Kind {
	case Host:
		return "host"
	case Pinned:
		return "pinned"
	default:
		return fmt.Sprintf("device:%d", p.ID)
	}
}

// Owner owns the memory of buffers. Free is called once per buffer, when its last reference is released, from any
// goroutine; the buffer then moves back to the owner. Free must not block.
type Owner interface {
	Free(b *Buffer)
}

// Allocator allocates buffers at one place. It is safe for concurrent use.
//
// Lifecycle of a buffer:
//
//  1. Alloc returns it with one reference. The holder may write it.
//  2. Retain adds references. From the second one on nobody may write it.
//  3. Release gives up a reference. The last one calls Free, and the memory may be used again.
//
// For example, New(pool, FP32, Of(2, 3)) allocates 24 bytes, and the tensor's Release frees
// them. An allocator must outlive its buffers.
type Allocator interface {
	Owner
	// Alloc returns n bytes, not cleared, with one reference that moves to the caller. n may
	// be 0. It fails when there is no memory.
	Alloc(n int) (*Buffer, error)
	Place() Place
}

// Buffer is reference-counted memory outside the Go heap, aligned to 64 bytes. Each reference has one holder, which
// must call Release exactly once. A buffer is immutable once it has a second reference. Retain, Release and every
// reading method are safe for concurrent use by holders. See Allocator for its lifecycle.
type Buffer struct {
	refs  atomic.Int32
	place Place
	class int8 // the pool's size class; negative for memory of its own mapping
	n     int
	ptr   unsafe.Pointer
	owner Owner
	next  *Buffer // the pool's free list
	order order   // of device work, and copies elsewhere
}

// NewBuffer wraps n bytes at ptr, memory that a native runtime owns, with one
// reference. owner.Free is called once, when the last reference is released.
func NewBuffer(owner Owner, place Place, ptr unsafe.Pointer, n int) *Buffer {
	b := &Buffer{}
	b.Reset(owner, place, ptr, n)
	return b
}

// Reset makes a released buffer wrap other memory, again with one reference, so that an owner
// can reuse buffers. It panics when a reference is left.
func (b *Buffer) Reset(owner Owner, place Place, ptr unsafe.Pointer, n int) {
	if b.refs.Load() != 0 {
		panic("tensor: reset of a buffer that is still held")
	}
	b.owner, b.place, b.ptr, b.n = owner, place, ptr, n
	b.refs.Store(1)
}

// Retain adds a reference, which moves to the caller. It panics when the last reference has been released.
func (b *Buffer) Retain() *Buffer {
	if b.refs.Add(1) <= 1 {
		b.refs.Add(-1) // a caller that recovers must not free the memory again
		panic("tensor: retain of a released buffer")
	}
	return b
}

// Release gives up one reference. The last one frees the memory.
func (b *Buffer) Release() {
	switch n := b.refs.Add(-1); {
	case n == 0:
		if b.order.copies != nil || b.order.ready != nil {
			b.order.end(b.place.Kind)
		}
		poison(b)
		b.owner.Free(b)
	case n < 0:
		b.refs.Add(1)
		panic("tensor: release of a released buffer")
	}
}

// Len returns the size in bytes.
func (b *Buffer) Len() int { return b.n }

// Place returns where the memory lives.
func (b *Buffer) Place() Place { return b.place }

// Pointer returns the address of the first byte, for native runtimes.
func (b *Buffer) Pointer() unsafe.Pointer { return b.ptr }

// Bytes returns the memory, borrowed: the caller must hold a reference while it uses the
// slice. It panics for device memory, which the host cannot read.
func (b *Buffer) Bytes() []byte {
	if b.place.Kind == Device {
		panic("tensor: host access to memory at " + b.place.String())
	}
	if b.n == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(b.ptr), b.n)
}

// order holds the device work on a buffer that the host does not wait for.
type order struct {
	mu     sync.Mutex
	ready  Event   // set before the buffer is shared
	uses   []Event // guarded by mu
	copies *copied // guarded by mu
}

// copied is a copy of part of a buffer at another place.
type copied struct {
	off, n int
	buf    *Buffer
	next   *copied
}

// SetReady sets the event after which b holds its content. Code that fills device memory, or host memory that a device
// copies to, must call it before it shares the buffer. Host memory must not be read or released before e is done.
func (b *Buffer) SetReady(e Event) { b.order.ready = e }

// Ready returns the event after which b holds its content; nil when it already does.
func (b *Buffer) Ready() Event { return b.order.ready }

// UsedUntil keeps b's memory from being reused before e is done. Code that puts work on b into
// a stream must call it before it releases the buffer.
func (b *Buffer) UsedUntil(e Event) {
	b.order.mu.Lock()
	defer b.order.mu.Unlock()
	b.order.uses = append(slices.DeleteFunc(b.order.uses, Event.Done), e)
}

// TakeOrder returns and clears the events that must be done before b's memory is reused. Only owners call it, in Free.
func (b *Buffer) TakeOrder() []Event {
	b.order.mu.Lock()
	defer b.order.mu.Unlock()
	all := b.order.uses
	if b.order.ready != nil {
		all = append(all, b.order.ready)
	}
	b.order.uses, b.order.ready = nil, nil
	return all
}

// Held returns the number of references. It may be outdated unless the caller holds them all.
func (b *Buffer) Held() int { return int(b.refs.Load()) }

// CopyFor returns a copy at place of the n bytes at off; the reference moves to the caller. The first call makes it
// with copyTo, which must not block. While b has other holders it keeps the copy until its last release, so that
// concurrent and later calls share it. For example, two steps on device:0 that read one host tensor cause one copy.
func (b *Buffer) CopyFor(off, n int, place Place, copyTo func() (*Buffer, error)) (*Buffer, error) {
	b.order.mu.Lock()
	defer b.order.mu.Unlock()
	for c := b.order.copies; c != nil; c = c.next {
		if c.off == off && c.n == n && c.buf.place == place {
			return c.buf.Retain(), nil
		}
	}
	made, err := copyTo()
	if err == nil && b.refs.Load() > 1 {
		b.order.copies = &copied{off: off, n: n, buf: made.Retain(), next: b.order.copies}
	}
	return made, err
}

// end clears what belongs to the released content. The owner takes the events of device memory.
func (o *order) end(k Kind) {
	if k != Device {
		o.ready = nil // every reader has waited for it
	}
	c := o.copies
	o.copies = nil
	for ; c != nil; c = c.next {
		c.buf.Release()
	}
}

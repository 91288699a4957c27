package tensor

import (
	"slices"
	"sync"
)

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

// SetReady sets the event after which b holds its content. Code that fills device memory, or
// host memory that a device copies to, must call it before it shares the buffer. Host memory
// must not be read or released before e is done.
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

// TakeOrder returns and clears the events that must be done before b's memory is reused. Only
// owners call it, in Free.
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

// CopyFor returns a copy at place of the n bytes at off; the reference moves to the caller.
// The first call makes it with copyTo, which must not block. While b has other holders it keeps
// the copy until its last release, so that concurrent and later calls share it. For example,
// two steps on device:0 that read one host tensor cause one copy.
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

// end clears what belongs to the released content. The owner takes the events of device
// memory.
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

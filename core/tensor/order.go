package tensor

import (
	"slices"
	"sync"
)

// order is what a buffer knows about work on it that the host does not wait for.
type order struct {
	mu     sync.Mutex
	ready  Event   // set before the buffer is shared
	uses   []Event // guarded by mu
	copies *copied // guarded by mu
}

// copied is what part of a buffer looks like at another place.
type copied struct {
	off, n int
	buf    *Buffer
	next   *copied
}

// SetReady says that b holds its content once e is done. It is for whoever fills the
// buffer, before anybody else has it; only memory of a device has such an event.
func (b *Buffer) SetReady(e Event) { b.order.ready = e }

// Ready returns the event after which b holds its content; nil: it does.
func (b *Buffer) Ready() Event { return b.order.ready }

// UsedUntil says that work which is done at e uses b: whoever put such work into a
// stream says so before it releases the buffer, and the memory is not used for
// anything else before.
func (b *Buffer) UsedUntil(e Event) {
	b.order.mu.Lock()
	defer b.order.mu.Unlock()
	b.order.uses = append(slices.DeleteFunc(b.order.uses, Event.Done), e)
}

// TakeOrder returns every event that b's memory must not be used before, and forgets
// them. It is for owners, when the last reference is gone.
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

// Held returns how many references there are. The answer may be old unless the
// caller holds them all.
func (b *Buffer) Held() int { return int(b.refs.Load()) }

// CopyAt returns a buffer at place with the n bytes at off, and a reference on it, or
// nil when b has no such copy.
func (b *Buffer) CopyAt(place Place, off, n int) *Buffer {
	b.order.mu.Lock()
	defer b.order.mu.Unlock()
	for c := b.order.copies; c != nil; c = c.next {
		if c.off == off && c.n == n && c.buf.place == place {
			return c.buf.Retain()
		}
	}
	return nil
}

// KeepCopy has b hold a reference of its own on a copy of its n bytes at off until b
// is released, so that others who need them there find it.
func (b *Buffer) KeepCopy(off, n int, c *Buffer) {
	b.order.mu.Lock()
	defer b.order.mu.Unlock()
	b.order.copies = &copied{off: off, n: n, buf: c.Retain(), next: b.order.copies}
}

func (o *order) dropCopies() {
	c := o.copies
	o.copies = nil
	for ; c != nil; c = c.next {
		c.buf.Release()
	}
}

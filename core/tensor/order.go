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
// buffer, before anybody else has it: memory of a device, or memory of the host that a
// device copies to, which nobody may look at or release before.
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

// Held returns how many references there are. The answer may be old unless the caller
// holds them all.
func (b *Buffer) Held() int { return int(b.refs.Load()) }

// CopyFor returns a copy at place of the n bytes at off, with a reference for the
// caller: the one that b keeps, or what copyTo returns. Others who hold b too are thought
// to want the copy as well, and b keeps a reference of its own on it until its last
// release; copyTo is called once however many ask at the same time. The caller's
// reference on b is enough for the call, and copyTo does not block.
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

// end forgets what concerns the content, which is gone. The events of device memory
// are its owner's to take.
func (o *order) end(k Kind) {
	if k != Device {
		o.ready = nil // whoever looked has waited for it
	}
	c := o.copies
	o.copies = nil
	for ; c != nil; c = c.next {
		c.buf.Release()
	}
}

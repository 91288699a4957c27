package infer

import (
	"sync/atomic"

	"github.com/tutti-server/tutti/internal/pool"
)

// Call is the Sink of a request with one response: get one from NewCall, submit the request
// with it, then call Wait, which returns it for reuse.
type Call struct {
	resp  *Response
	err   error
	state atomic.Int32 // records whether Close or Wait came first; in the latter case Wait blocks on wake
	wake  chan struct{}

	ender Ender // called by the waiter before it returns; nil for none
	next  *Call // the next one of a WakeList, later of those that the waiter wakes
}

// The states of a Call.
const (
	callOpen int32 = iota
	callClosed
	callAwaited
)

// Ender is an executed request whose response is not sent yet.
type Ender interface {
	// End makes the response, sends it and closes the sink.
	End()
}

var _ Sink = (*Call)(nil)

var calls = pool.Of[Call]{New: func() *Call { return &Call{wake: make(chan struct{}, 1)} }}

// NewCall returns a Call to submit one request with.
func NewCall() *Call { return calls.Get() }

// Send stores the response; a later one replaces it.
func (c *Call) Send(r *Response) {
	if c.resp != nil {
		c.resp.Release()
	}
	c.resp = r
}

// Close wakes the waiter, if there is one already. There is none, for example, when the
// submitting goroutine executed the request itself.
func (c *Call) Close(err error) {
	c.err = err
	if c.state.Swap(callClosed) == callAwaited {
		c.wake <- struct{}{}
	}
}

// Wait returns the response, which moves to the caller, or the error of Close, and returns
// the Call for reuse. It must be called once. It waits for Close even when the request's
// context is cancelled: the request's memory is in use until then.
func (c *Call) Wait() (*Response, error) {
	if c.state.CompareAndSwap(callOpen, callAwaited) {
		<-c.wake
		c.woken()
	}
	resp, err := c.resp, c.err
	c.resp, c.err = nil, nil
	c.state.Store(callOpen)
	calls.Put(c)
	if err != nil && resp != nil {
		resp.Release()
		resp = nil
	}
	return resp, err
}

// woken wakes the other waiters of the list and makes the waiter's own response.
func (c *Call) woken() {
	for n := c.next; n != nil; {
		after := n.next
		n.next = nil
		n.wake <- struct{}{}
		n = after
	}
	c.next = nil
	if e := c.ender; e != nil {
		c.ender = nil
		c.state.Store(callClosed) // no wake follows
		e.End()
	}
}

// WakeList is a list of calls whose waiters are woken together. The zero value is empty.
type WakeList struct {
	head, tail *Call
}

// Add lets the waiter of c make its own response when it is woken, and reports whether c has a waiter. The executing
// goroutine is spared that work, and the request's memory stays in the cache of the processor on which its client runs.
func (l *WakeList) Add(c *Call, e Ender) bool {
	if c.state.Load() != callAwaited {
		return false
	}
	c.ender = e
	if l.tail == nil {
		l.head = c
	} else {
		l.tail.next = c
	}
	l.tail = c
	return true
}

// Wake wakes all waiters. It wakes two directly, of which the first wakes the others: these become runnable on the
// waiter's processor, and other processors need not steal them from the executing one. The second one is woken directly
// because Go's scheduler does not steal the goroutine that was made runnable last for a while.
func (l *WakeList) Wake() {
	if l.head != nil {
		l.wake()
	}
}

func (l *WakeList) wake() {
	first := l.head
	second := first.next
	*l = WakeList{}
	if second != nil {
		first.next, second.next = second.next, nil
	}
	first.wake <- struct{}{}
	if second != nil {
		second.wake <- struct{}{}
	}
}

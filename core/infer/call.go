package infer

import (
	"sync/atomic"

	"github.com/tutti-server/tutti/internal/pool"
)

// Call is the Sink of a request that has one answer.
type Call struct {
	resp *Response
	err  error
	// state says who came first: the answer, or the waiter, who then waits for wake.
	state atomic.Int32
	wake  chan struct{}

	ender Ender // what the waiter does first, nil when all is done
	next  *Call // in Calls, and then whom the waiter wakes
}

// The states of a Call.
const (
	callOpen int32 = iota
	callClosed
	callAwaited
)

// Ender is a request that is over but for its answer.
type Ender interface {
	// End makes the answer: it sends and closes.
	End()
}

var _ Sink = (*Call)(nil)

var calls = pool.Of[Call]{New: func() *Call { return &Call{wake: make(chan struct{}, 1)} }}

// NewCall returns a Call to submit one request with.
func NewCall() *Call { return calls.Get() }

// Send keeps the answer; only the last one counts.
func (c *Call) Send(r *Response) {
	if c.resp != nil {
		c.resp.Release()
	}
	c.resp = r
}

// Close lets the waiter go on. An answer that is there before anybody waits, as when
// the submitting goroutine did the work itself, wakes nobody.
func (c *Call) Close(err error) {
	c.err = err
	if c.state.Swap(callClosed) == callAwaited {
		c.wake <- struct{}{}
	}
}

// Wait returns the answer, which moves to the caller, or the failure, and returns
// the Call for reuse. It waits for the request to end even when its context is
// over: a cancelled request ends by itself, and its memory is in use until then.
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

// woken does what the waiter was woken for besides: to wake others, and to make its
// own answer.
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
		c.state.Store(callClosed) // nobody is to be woken any more
		e.End()
	}
}

// Calls are calls whose waiters are to be woken. The zero value has none.
type WakeList struct {
	head, tail *Call
}

// Add has the waiter of c make the answer itself, when it is woken, and reports
// whether there is one: that spares whoever executes requests for many the work, and
// what a request needs stays with the processor that its client runs on.
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

// Wake wakes all waiters: two of them, of whom the first wakes the others. So they get
// ready where they run, and are not to be fetched from the processor of whoever
// executes, one by one. The second keeps the first from being the one that was made
// ready last, whom another processor leaves alone for a while.
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

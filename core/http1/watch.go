package http1

import (
	"sync"
	"syscall"
	"time"
)

// watchAfter is how long a request takes before its client is looked after.
const watchAfter = 5 * time.Millisecond

// past is a deadline that ends a read at once.
var past = time.Unix(1, 0)

// watch ends a request's context when its client leaves. Most requests are answered sooner than it begins to look.
type watch struct {
	c     *conn
	timer *time.Timer
	over  chan struct{} // holds one: look has returned

	mu   sync.Mutex
	stop bool // guarded by mu: the request is answered
}

func newWatch(c *conn) *watch {
	w := &watch{c: c, over: make(chan struct{}, 1)}
	w.timer = time.AfterFunc(time.Hour, w.look)
	w.timer.Stop()
	return w
}

func (w *watch) begin() { w.timer.Reset(watchAfter) }

// end returns when nobody looks any more.
func (w *watch) end() {
	if w.timer.Stop() {
		return
	}
	w.mu.Lock()
	w.stop = true
	w.c.set = time.Time{}
	_ = w.c.nc.SetReadDeadline(past) // what is closed ends look as well
	again := w.timer.Stop()
	w.mu.Unlock()
	if !again {
		<-w.over
	}
	w.mu.Lock()
	w.stop = false
	w.mu.Unlock()
}

// look waits until the client leaves or sends more.
func (w *watch) look() {
	w.mu.Lock()
	if w.stop {
		w.mu.Unlock()
		w.over <- struct{}{}
		return
	}
	if !w.c.body.arrived.Load() {
		w.timer.Reset(watchAfter) // whoever reads the body sees the client leave
		w.mu.Unlock()
		return
	}
	_ = w.c.nc.SetReadDeadline(time.Time{}) // what is closed ends the read below
	w.mu.Unlock()
	left := false
	err := w.c.raw.Read(func(fd uintptr) bool {
		var one [1]byte
		n, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		if err == syscall.EAGAIN || err == syscall.EINTR {
			return false
		}
		left = err != nil || n == 0
		return true
	})
	w.mu.Lock()
	if left || err != nil && !w.stop {
		w.c.gone()
	}
	w.mu.Unlock()
	w.over <- struct{}{}
}

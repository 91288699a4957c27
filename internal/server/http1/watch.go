package http1

import (
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// watchAfter is how long a request takes at least before its client is looked after, and how often that is seen to: each
// look wakes an idle server.
const watchAfter = 20 * time.Millisecond

// past is a deadline that ends a read at once.
var past = time.Unix(1, 0)

// watches are the requests at hand, looked through every few milliseconds while there are any. A timer for each would cost
// more than most requests: it is the first to end, and has to pass those of all idle connections in the runtime's heap.
type watches struct {
	shards [16]watchShard
	turn   atomic.Uint32 // spreads connections over the shards
	on     atomic.Bool   // the timer runs
	timer  *time.Timer
}

type watchShard struct {
	mu   sync.Mutex
	list []*watch // guarded by mu
	_    [64]byte // the next one is another processor's
}

func newWatches() *watches {
	all := &watches{}
	all.timer = time.AfterFunc(time.Hour, all.sweep)
	all.timer.Stop()
	return all
}

// arm makes sure that sweep comes.
func (all *watches) arm() {
	if !all.on.Load() && all.on.CompareAndSwap(false, true) {
		all.timer.Reset(watchAfter)
	}
}

// sweep begins to look after the clients of the requests that take long.
func (all *watches) sweep() {
	if now := time.Now(); all.each(now) {
		all.timer.Reset(watchAfter)
		return
	}
	all.on.Store(false)
	for i := range all.shards {
		s := &all.shards[i]
		s.mu.Lock()
		some := len(s.list) > 0
		s.mu.Unlock()
		if some { // it began meanwhile, and saw that the timer runs
			all.arm()
			return
		}
	}
}

// each looks at all, and reports whether any are left.
func (all *watches) each(now time.Time) (left bool) {
	for i := range all.shards {
		s := &all.shards[i]
		s.mu.Lock()
		for at := 0; at < len(s.list); {
			w := s.list[at]
			// As long as the body comes, whoever reads it sees the client leave.
			if now.Sub(w.since) < watchAfter || !w.c.body.arrived.Load() {
				at++
				continue
			}
			s.remove(w)
			go w.look()
		}
		left = left || len(s.list) > 0
		s.mu.Unlock()
	}
	return left
}

// remove takes w out of the list.
func (s *watchShard) remove(w *watch) {
	n := len(s.list) - 1
	last := s.list[n]
	s.list[w.at], last.at = last, w.at
	s.list[n] = nil
	s.list = s.list[:n]
	w.at = -1
}

// watch ends a request's context when its client leaves. Most requests are answered sooner than it begins to look.
type watch struct {
	c     *conn
	all   *watches
	shard *watchShard
	since time.Time     // when the request began
	over  chan struct{} // holds one: look has returned
	at    int           // guarded by shard.mu: where it is in the list, -1 when it has left to look
	stop  bool          // guarded by shard.mu: the request is answered
}

func newWatch(c *conn, all *watches) *watch {
	n := all.turn.Add(1) % uint32(len(all.shards)) //nolint:gosec // a small constant
	return &watch{c: c, all: all, shard: &all.shards[n], over: make(chan struct{}, 1)}
}

func (w *watch) begin(now time.Time) {
	s := w.shard
	s.mu.Lock()
	w.since, w.at = now, len(s.list)
	s.list = append(s.list, w)
	s.mu.Unlock()
	w.all.arm()
}

// end returns when nobody looks any more.
func (w *watch) end() {
	s := w.shard
	s.mu.Lock()
	if w.at >= 0 {
		s.remove(w)
		s.mu.Unlock()
		return
	}
	w.stop = true
	w.c.set = time.Time{}
	_ = w.c.nc.SetReadDeadline(past) // what is closed ends look as well
	s.mu.Unlock()
	<-w.over
	s.mu.Lock()
	w.stop = false
	s.mu.Unlock()
}

// look waits until the client leaves or sends more, or the request is answered.
func (w *watch) look() {
	s := w.shard
	s.mu.Lock()
	if !w.stop {
		_ = w.c.nc.SetReadDeadline(time.Time{}) // what is closed ends the read below
	}
	s.mu.Unlock()
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
	s.mu.Lock()
	if left || err != nil && !w.stop {
		w.c.gone()
	}
	s.mu.Unlock()
	w.over <- struct{}{}
}

package http1

import (
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// watchAfter is how long a request runs before the server begins to watch for its client's disconnect, and the shortest interval of
	// the sweeps that find such requests.
	watchAfter = 20 * time.Millisecond
	// watchRarely is the longest interval of the sweeps. Each sweep wakes two or three threads of an idle process, which costs as much as
	// a small request. So there are none without requests, and the interval doubles after each sweep that finds no request of watchAfter.
	watchRarely = 16 * watchAfter
)

// past is a deadline that ends a pending read at once.
var past = time.Unix(1, 0)

// watchers holds the requests in progress. One timer sweeps over them while there are any. A timer for each
// request would cost more than most requests: it would be the first to expire, so the runtime would move it past the timers of
// all idle connections in its heap.
type watchers struct {
	shards [16]watchShard
	next   atomic.Uint32 // spreads connections over the shards
	on     atomic.Bool   // the timer runs
	every  atomic.Int64  // the interval until the next sweep, in ns; that of the timer when on, else of the next arm
	timer  *time.Timer
}

type watchShard struct {
	mu   sync.Mutex
	list []*watcher // guarded by mu
	_    [64]byte   // keeps the next shard in another cache line
}

func newWatchers() *watchers {
	all := &watchers{}
	all.every.Store(int64(watchAfter))
	all.timer = time.AfterFunc(time.Hour, all.sweep)
	all.timer.Stop()
	return all
}

// arm starts the timer unless it runs.
func (all *watchers) arm() {
	if !all.on.Load() && all.on.CompareAndSwap(false, true) {
		all.timer.Reset(time.Duration(all.every.Load()))
	}
}

// sweep starts to watch the clients of long requests, and rearms the timer while requests are in progress.
func (all *watchers) sweep() {
	long, left := all.each(time.Now())
	every := min(2*time.Duration(all.every.Load()), watchRarely)
	if long {
		every = watchAfter
	}
	all.every.Store(int64(every))
	if left {
		all.timer.Reset(every)
		return
	}
	all.on.Store(false)
	for i := range all.shards {
		s := &all.shards[i]
		s.mu.Lock()
		some := len(s.list) > 0
		s.mu.Unlock()
		if some { // a request began meanwhile and saw the timer run
			all.arm()
			return
		}
	}
}

// each starts the watch of every long request, and reports whether there are long ones, and whether requests are left that it does not watch.
func (all *watchers) each(now time.Time) (long, left bool) {
	for i := range all.shards {
		s := &all.shards[i]
		s.mu.Lock()
		for at := 0; at < len(s.list); {
			w := s.list[at]
			old := now.Sub(w.since) >= watchAfter
			long = long || old
			// While the body arrives, its reader sees the disconnect.
			if !old || !w.c.body.arrived.Load() {
				at++
				continue
			}
			s.remove(w)
			go w.watchSocket()
		}
		left = left || len(s.list) > 0
		s.mu.Unlock()
	}
	return long, left
}

// remove removes w from the list.
func (s *watchShard) remove(w *watcher) {
	n := len(s.list) - 1
	last := s.list[n]
	s.list[w.at], last.at = last, w.at
	s.list[n] = nil
	s.list = s.list[:n]
	w.at = -1
}

// watcher cancels the context of a connection's requests when the client disconnects. begin and end bracket each request. Most
// requests end before watchAfter, so that the socket is never watched.
type watcher struct {
	c     *conn
	all   *watchers
	shard *watchShard
	since time.Time     // when the request began
	over  chan struct{} // has capacity 1; receives when watchSocket returns
	at    int           // guarded by shard.mu: index in the list, -1 while watchSocket runs
	stop  bool          // guarded by shard.mu: the request is complete
}

func (w *watcher) begin(now time.Time) {
	s := w.shard
	s.mu.Lock()
	w.since, w.at = now, len(s.list)
	s.list = append(s.list, w)
	s.mu.Unlock()
	w.all.arm()
}

// end ends the watch of the request, and waits for watchSocket if it runs.
func (w *watcher) end() {
	s := w.shard
	s.mu.Lock()
	if w.at >= 0 {
		s.remove(w)
		s.mu.Unlock()
		return
	}
	w.stop = true
	w.c.set = time.Time{}
	_ = w.c.nc.SetReadDeadline(past) // a closed connection ends watchSocket as well
	s.mu.Unlock()
	<-w.over
	s.mu.Lock()
	w.stop = false
	s.mu.Unlock()
}

// watchSocket waits until the client disconnects or sends more, or the request is complete.
func (w *watcher) watchSocket() {
	s := w.shard
	s.mu.Lock()
	if !w.stop {
		_ = w.c.nc.SetReadDeadline(time.Time{}) // a closed connection ends the read below
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

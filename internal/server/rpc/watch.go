package rpc

import (
	"sync"
	"time"
)

// watchEvery is the interval of the looks at connections whose lead is lent. A lead that is lent at two looks in a row is given away.
const watchEvery = 2 * time.Millisecond

// watch looks at the connections whose lead was lent lately. One timer does so while there are any, so that a call sets none.
type watch struct {
	mu    sync.Mutex
	list  []*conn // guarded by mu
	timer *time.Timer
	on    bool // the timer runs; guarded by mu
}

func (w *watch) init() {
	w.timer = time.AfterFunc(time.Hour, w.look)
	w.timer.Stop()
}

// see adds a connection to the list.
//
// hot: a load for a connection that is in it.
func (w *watch) see(c *conn) {
	if !c.listed.Load() {
		w.add(c)
	}
}

func (w *watch) add(c *conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.listed.Load() {
		return
	}
	c.listed.Store(true)
	c.watched = 0
	w.list = append(w.list, c)
	if !w.on {
		w.on = true
		w.timer.Reset(watchEvery)
	}
}

// look gives away the leads that are lent since the last look, and forgets the connections whose lead is not lent.
func (w *watch) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	kept := w.list[:0]
	for _, c := range w.list {
		v := c.lent.Load()
		switch {
		case v&1 == 0:
			c.listed.Store(false)
			if c.lent.Load() == v {
				continue
			}
			c.listed.Store(true) // it was lent meanwhile, and may have missed that it is forgotten
		case v == c.watched && c.reclaim(v):
			go c.lead()
		}
		c.watched = c.lent.Load()
		kept = append(kept, c)
	}
	clear(w.list[len(kept):])
	w.list = kept
	if w.on = len(kept) > 0; w.on {
		w.timer.Reset(watchEvery)
	}
}

package onnx

/*
#include "shim.h"
*/
import "C"

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/tutti-server/tutti/backends"
)

// patience is how long a run is left alone at least. Most are over by then, and cost no more than a few atomic operations.
const patience = 10 * time.Millisecond

// watch stops a run of the runtime once everybody who waits for it has gone. While there are runs, a timer looks now and
// then whether the same one is still under way; it then waits beside it for those who may leave.
type watch struct {
	call  *C.tt_call
	state atomic.Uint64 // how many runs have begun or ended, above phaseBits of phase
	armed atomic.Bool   // the timer is set, or its goroutine at work
	timer *time.Timer

	seen    uint64        // the state that the timer saw last; only its goroutine's
	ended   chan struct{} // the watched run is over: taken by that goroutine
	stopped bool          // written by it before it takes from ended

	ctx  context.Context //nolint:containedctx // that of the run under way
	reqs []backends.Request
}

// What a run is in.
const (
	running   = 1 << iota // the instance computes
	watched               // and a goroutine waits beside it, which ctx and reqs belong to
	oneRun                // the first bit of the count
	phaseBits = running | watched
)

func (w *watch) begin(c *C.tt_call) {
	w.call, w.ended = c, make(chan struct{})
	w.timer = time.AfterFunc(time.Hour, w.tick)
	w.timer.Stop()
}

// over begins to watch a run and reports whether end must be called after it: nobody can leave otherwise.
//
// hot: no allocation.
func (w *watch) over(ctx context.Context, b *backends.Batch) bool {
	if ctx.Done() == nil && !leaving(b.Requests) {
		return false
	}
	w.ctx, w.reqs = ctx, b.Requests
	w.state.Store(w.state.Load()&^phaseBits + oneRun | running)
	if !w.armed.Load() && w.armed.CompareAndSwap(false, true) {
		w.timer.Reset(patience)
	}
	return true
}

// leaving reports whether every member of a batch may leave.
func leaving(reqs []backends.Request) bool {
	for i := range reqs {
		if reqs[i].Ctx == nil || reqs[i].Ctx.Done() == nil {
			return false
		}
	}
	return len(reqs) > 0
}

// end reports whether the run was stopped.
func (w *watch) end() bool {
	s, stopped := w.state.Load(), false
	if s&watched != 0 || !w.state.CompareAndSwap(s, s&^phaseBits) {
		w.ended <- struct{}{}
		if stopped = w.stopped; stopped {
			C.tt_resume(w.call)
			w.stopped = false
		}
		w.state.Store(s &^ phaseBits)
	}
	w.ctx, w.reqs = nil, nil
	return stopped
}

// tick is what the timer starts, never twice at a time.
func (w *watch) tick() {
	s := w.state.Load()
	switch {
	case s != w.seen:
	case s&phaseBits == running: // one whose watch is over but that has not said so yet is none to watch again
		if w.state.CompareAndSwap(s, s|watched) {
			w.wait()
		}
	default: // nothing has run since the last time
		w.armed.Store(false)
		if w.state.Load() == s || !w.armed.CompareAndSwap(false, true) {
			return
		}
	}
	w.seen = s
	w.timer.Reset(patience)
}

// wait stops the run under way if everybody leaves, and returns once it is over.
func (w *watch) wait() {
	if !w.gone() {
		return
	}
	w.stopped = true
	C.tt_stop_run(w.call)
	<-w.ended
}

// gone returns once nobody waits for the run, or with false once it is over.
func (w *watch) gone() bool {
	if leaving(w.reqs) {
		for i := range w.reqs {
			select {
			case <-w.reqs[i].Ctx.Done():
			case <-w.ctx.Done():
				return true
			case <-w.ended:
				return false
			}
		}
		return true
	}
	select {
	case <-w.ctx.Done():
		return true
	case <-w.ended:
		return false
	}
}

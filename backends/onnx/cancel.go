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

// patience is the least time before a run is watched. Most runs end earlier, and cost only a few atomic operations.
const patience = 10 * time.Millisecond

// watch stops a run of the runtime when all its requests are cancelled. While an instance is busy, a timer checks periodically
// whether the same run is still in progress; its goroutine then waits for the cancellations beside the run.
type watch struct {
	call  *C.tt_call
	state atomic.Uint64 // number of started runs, above the bits of phaseBits
	armed atomic.Bool   // the timer is set, or its goroutine runs
	timer *time.Timer

	seen    uint64        // state at the last tick; used by the timer's goroutine only
	ended   chan struct{} // receives a value when the watched run has ended
	stopped bool          // set by the timer's goroutine before it receives from ended

	ctx  context.Context //nolint:containedctx // context of the current run
	reqs []backends.Request
}

// Phases of a run, and the unit of the counter above them.
const (
	running   = 1 << iota // the runtime executes
	watched               // the timer's goroutine uses ctx and reqs
	oneRun                // the counter
	phaseBits = running | watched
)

func (w *watch) begin(c *C.tt_call) {
	w.call, w.ended = c, make(chan struct{})
	w.timer = time.AfterFunc(time.Hour, w.tick)
	w.timer.Stop()
}

// over starts watching a run, and reports whether the caller must call end. It returns false when the run cannot be cancelled.
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

// leaving reports whether every request of a batch can be cancelled.
func leaving(reqs []backends.Request) bool {
	for i := range reqs {
		if reqs[i].Ctx == nil || reqs[i].Ctx.Done() == nil {
			return false
		}
	}
	return len(reqs) > 0
}

// end ends watching, and reports whether the run was stopped.
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

// tick is the function of the timer. It never runs twice at once.
func (w *watch) tick() {
	s := w.state.Load()
	switch {
	case s != w.seen:
	case s&phaseBits == running: // a run that is watched already is not watched again
		if w.state.CompareAndSwap(s, s|watched) {
			w.wait()
		}
	default: // no run since the last tick
		w.armed.Store(false)
		if w.state.Load() == s || !w.armed.CompareAndSwap(false, true) {
			return
		}
	}
	w.seen = s
	w.timer.Reset(patience)
}

// wait stops the run when all requests are cancelled. It returns after the run.
func (w *watch) wait() {
	if !w.gone() {
		return
	}
	w.stopped = true
	C.tt_stop_run(w.call)
	<-w.ended
}

// gone returns true when all requests are cancelled, or false when the run ends before.
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

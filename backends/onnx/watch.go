package onnx

/*
#include "shim.h"
*/
import "C"

import (
	"context"
	"time"

	"tutti/backends"
)

// patience is how long a run is left alone. Most are over by then, and cost a timer that is set and taken back.
const patience = 10 * time.Millisecond

// watch stops a run of the runtime once everybody who waits for it has gone.
type watch struct {
	call    *C.tt_call
	timer   *time.Timer
	ended   chan struct{} // the run is over: taken by the goroutine that the timer started
	stopped bool          // written by that goroutine before it takes from ended

	ctx  context.Context //nolint:containedctx // that of the run under way
	reqs []backends.Req
}

func (w *watch) begin(c *C.tt_call) {
	w.call, w.ended = c, make(chan struct{})
	w.timer = time.AfterFunc(time.Hour, w.wait)
	w.timer.Stop()
}

// over begins to watch a run and reports whether end must be called after it: nobody can leave otherwise.
//
// hot: no allocation.
func (w *watch) over(ctx context.Context, b *backends.Batch) bool {
	if ctx.Done() == nil && !leaving(b.Reqs) {
		return false
	}
	w.ctx, w.reqs = ctx, b.Reqs
	w.timer.Reset(patience)
	return true
}

// leaving reports whether every member of a batch may leave.
func leaving(reqs []backends.Req) bool {
	for i := range reqs {
		if reqs[i].Ctx == nil || reqs[i].Ctx.Done() == nil {
			return false
		}
	}
	return len(reqs) > 0
}

// end reports whether the run was stopped.
func (w *watch) end() bool {
	stopped := false
	if !w.timer.Stop() {
		w.ended <- struct{}{}
		if stopped = w.stopped; stopped {
			C.tt_resume(w.call)
			w.stopped = false
		}
	}
	w.ctx, w.reqs = nil, nil
	return stopped
}

// wait is a goroutine of its own, for a run that takes long.
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

package openvino

/*
#cgo noescape tov_run
#cgo nocallback tov_run
#include "shim.h"
*/
import "C"

import (
	"context"
	"time"

	"github.com/tutti-server/tutti/core/status"
)

const (
	// shortRun is the longest execution that is not cancelled: watching it would cost more than its remainder.
	shortRun = time.Millisecond
	// cancelEvery is the interval at which cancellation is requested until the execution ends. An infer request that has not
	// started yet ignores it.
	cancelEvery = time.Millisecond
)

// run runs the model once. When ctx is cancelled it stops between two nodes of the graph, unless the model's executions are short.
func (x *instance) run(ctx context.Context) error {
	start := time.Now()
	var e C.tov_error
	if ctx.Done() != nil && x.m.slow.Load() {
		e = x.watched(ctx)
	} else {
		e = C.tov_run(x.call)
	}
	if slow := time.Since(start) > shortRun; slow != x.m.slow.Load() {
		x.m.slow.Store(slow)
	}
	if e.text == nil {
		return nil
	}
	err := check(e)
	if ctx.Err() != nil {
		return status.ErrCancelled
	}
	return status.Errorf(status.CodeOf(err), "model '%s': %w", x.m.binding.Sig.Model, err)
}

// watched is tov_run, cancelled with ctx.
func (x *instance) watched(ctx context.Context) C.tov_error {
	over, left := make(chan struct{}), make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(left)
		x.cancel(over)
	})
	e := C.tov_run(x.call)
	close(over)
	if !stop() {
		<-left // otherwise it could cancel the next execution
	}
	return e
}

// cancel cancels the infer request until it has ended.
func (x *instance) cancel(over <-chan struct{}) {
	tick := time.NewTicker(cancelEvery)
	defer tick.Stop()
	for {
		C.tov_cancel(x.call)
		select {
		case <-over:
			return
		case <-tick.C:
		}
	}
}
